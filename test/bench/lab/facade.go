package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Facade is a process that serves the façade alone, without limits of callers.
type Facade struct {
	Command *exec.Cmd
	Address string
}

// StartTokenFacade starts the program with entries of the environment, such as NAME=value, besides its own, and waits
// until it asks for a token. The caller stops it.
func StartTokenFacade(ctx context.Context, program, kubeconfig string, flags []string, environment ...string) (*Facade, error) {
	f, err := startFacade(ctx, program, kubeconfig, append([]string{"--facade-auth=token", "--facade-audiences=" + tokenAudience}, flags...), environment, nil)
	if err != nil {
		return nil, err
	}
	if err := f.waitUntilItServes(ctx); err != nil {
		f.Stop()
		return nil, err
	}
	return f, nil
}

// startFacade starts the program. Its errors go to log unless that is nil.
func startFacade(ctx context.Context, program, kubeconfig string, authentication, environment []string, log io.Writer) (*Facade, error) {
	address, err := FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	f := &Facade{Address: address, Command: exec.Command(program, append([]string{
		"--components=facade", "--kubeconfig=" + kubeconfig, "--leader-election-namespace=forrst-system",
		"--facade-bind-address=" + address, "--health-probe-bind-address=0", "--metrics-bind-address=0", "--facade-shutdown-delay=0s",
		"--facade-max-rate-per-caller=0", "--max-locks-per-namespace=0",
	}, authentication...)...)}
	f.Command.Env, f.Command.Stderr = append(os.Environ(), environment...), log
	f.Command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return f, f.Command.Start()
}

// waitUntilItServes returns when the façade asks for a token.
func (f *Facade) waitUntilItServes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	ticker := time.NewTicker(startPoll)
	defer ticker.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.Address+"/forrst", http.NoBody)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close() // the status is all there is to it
			if response.StatusCode == http.StatusUnauthorized {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the façade: %w", context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// Stop ends the process. How it ends is of no interest: it has been measured.
func (f *Facade) Stop() {
	_ = f.Command.Process.Signal(syscall.SIGTERM)
	_ = f.Command.Wait()
}

// FreeAddress returns a loopback address that nothing listens on.
func FreeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
