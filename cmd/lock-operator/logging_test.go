package main

import (
	"bytes"
	"flag"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// logged returns what client-go logs of a request whose body and answer have a secret, with the flags.
func logged(t *testing.T, newLogger func(*zap.Options) logr.Logger, flags ...string) string {
	t.Helper()
	const secret = "secret-owner-token"
	var out bytes.Buffer
	options := zap.Options{DestWriter: &out}
	set := flag.NewFlagSet(t.Name(), flag.ContinueOnError)
	options.BindFlags(set)
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	logger := newLogger(&options)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","message":"` + secret + `"}`))
	}))
	defer server.Close()
	client, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: server.URL, BearerToken: secret, ContentConfig: rest.ContentConfig{NegotiatedSerializer: clientgoscheme.Codecs},
	})
	if err != nil {
		t.Fatal(err)
	}
	body := &metav1.Status{Message: secret}
	if err := client.Post().AbsPath("/").Body(body).Do(logr.NewContext(t.Context(), logger)).Error(); err != nil {
		t.Fatal(err)
	}
	logger.V(maxVerbosity).Info("Logged at the highest verbosity")
	return out.String()
}

// The bodies of requests to the API server have the tokens of callers and of locks, and client-go logs them at
// a high verbosity.
func TestNoVerbosityLogsBodies(t *testing.T) {
	for _, flags := range [][]string{{"--zap-log-level=10"}, {"--zap-log-level=127"}, {"--zap-devel", "--zap-log-level=9"}} {
		text := logged(t, newLogger, flags...)
		if strings.Contains(text, "secret") || strings.Contains(text, "Body") {
			t.Errorf("%v: logs %s", flags, text)
		}
		if !strings.Contains(text, "Logged at the highest verbosity") {
			t.Errorf("%v: logs %q, want verbosity %d", flags, text, maxVerbosity)
		}
	}
	unbounded := func(options *zap.Options) logr.Logger { return zap.New(zap.UseFlagOptions(options)) }
	if text := logged(t, unbounded, "--zap-log-level=10"); !strings.Contains(text, "secret") {
		t.Errorf("client-go logs no bodies any more (%q): is the bound still needed?", text)
	}
}

// Without the flag the levels are those of the library.
func TestDefaultVerbosity(t *testing.T) {
	for flags, want := range map[string]int{"": 0, "--zap-devel": 1, "--zap-log-level=debug": 1, "--zap-log-level=3": 3} {
		var options zap.Options
		set := flag.NewFlagSet(t.Name(), flag.ContinueOnError)
		options.BindFlags(set)
		if err := set.Parse(strings.Fields(flags)); err != nil {
			t.Fatal(err)
		}
		logger := newLogger(&options)
		if !logger.V(want).Enabled() || logger.V(want+1).Enabled() {
			t.Errorf("%q does not log up to verbosity %d", flags, want)
		}
	}
}
