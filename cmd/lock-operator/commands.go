package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	facadeclient "forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/installation"
	"forrst.dev/lock-operator/lock/apianswers"
	"forrst.dev/lock-operator/lock/servertime"
)

// commandTimeout bounds a command that ends by itself.
const commandTimeout = time.Minute

// commands are what the first argument may name in place of flags. They look at an installation, and end.
var commands = map[string]func(ctx context.Context, flags *flag.FlagSet, arguments []string, output io.Writer) error{
	"try":            try,
	"check-released": checkReleased,
}

// runCommand runs the command that the arguments name, if they name one.
func runCommand(arguments []string) (isCommand bool, err error) {
	if len(arguments) == 0 {
		return false, nil
	}
	command, ok := commands[arguments[0]]
	if !ok {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctrl.SetupSignalHandler(), commandTimeout)
	defer cancel()
	// It has --kubeconfig.
	return true, command(ctx, flag.CommandLine, arguments[1:], os.Stdout)
}

// try takes a lock through the façade and releases it, and has the API server judge another one through the webhook.
func try(ctx context.Context, flags *flag.FlagSet, arguments []string, output io.Writer) error {
	url := flags.String("facade", "", "The URL of the façade.")
	authority := flags.String("facade-ca-file", "", "The authority of its certificate, in PEM; empty for those of the system.")
	token := flags.String("token-file", "", "The token to call it with.")
	namespace := flags.String("namespace", "", "The namespace of the lock.")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	roots, err := readAuthority(*authority)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	facade, err := facadeclient.New(*url, facadeclient.WithBearerTokenFile(*token), facadeclient.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		return err
	}
	defer facade.Close()
	fencingToken, err := installation.Try(ctx, facade, *namespace)
	if err != nil {
		return fmt.Errorf("take a lock through %s: %w", *url, err)
	}
	if _, err := fmt.Fprintf(output, "A lock was acquired and released through %s; its fencing token was %d.\n", *url, fencingToken); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	writer, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if err := installation.TryWrite(ctx, writer, *namespace); err != nil {
		return fmt.Errorf("%w; if the API servers do not reach the webhook, see \"What the network must allow\" in docs/install.md", err)
	}
	_, err = fmt.Fprintln(output, "The API server asked the webhook about a lock, which was not stored.")
	return err
}

// readAuthority returns nil, which stands for the authorities of the system, if there is no file.
func readAuthority(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return roots, nil
}

// checkReleased fails, and says why, if something would be left behind without the operator.
func checkReleased(ctx context.Context, flags *flag.FlagSet, arguments []string, output io.Writer) error {
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	now := servertime.New(clock.RealClock{})
	config.Wrap(apianswers.RoundTripper)
	config.Wrap(now.RoundTripper)
	reader, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	held, err := installation.Held(ctx, reader, now)
	if err != nil {
		return err
	}
	const most = 50
	for i, line := range held {
		if i == most {
			line = fmt.Sprintf("… and %d more", len(held)-most)
		}
		if _, err := fmt.Fprintln(output, line); err != nil {
			return err
		}
		if i == most {
			break
		}
	}
	if len(held) > 0 {
		return errors.New("something is still under a lock; see docs/install.md")
	}
	_, err = fmt.Fprintln(output, "No lock is held, and no Job is under a lock.")
	return err
}
