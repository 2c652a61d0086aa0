package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// tokenAudience is the audience that the compared façades ask for.
const tokenAudience = "lock-operator.forrst.dev"

// Names of the contenders of builds.
const (
	thisBuild    = "façade, token"
	anotherBuild = "façade, token, -against"
)

// builds compares the façade of this build with that of the program of -against. Both authenticate
// their callers, and serve the same cluster.
func builds(clients int) func(context.Context, *lab, *report) error {
	return func(ctx context.Context, l *lab, r *report) error {
		bearer, err := callerToken(ctx, l.admin)
		if err != nil {
			return err
		}
		c := &comparison{
			name: fmt.Sprintf("builds, %d", clients), clients: clients,
			rounds: l.options.roundsOf(60), slice: 300 * time.Millisecond,
		}
		for _, build := range []struct{ name, program string }{{thisBuild, l.options.operator}, {anotherBuild, l.options.against}} {
			process, err := startTokenFacade(ctx, build.program, l.cluster.operatorKubeconfig())
			if err != nil {
				for _, started := range c.contenders {
					started.stop()
				}
				return fmt.Errorf("%s: %w", build.program, err)
			}
			c.contenders = append(c.contenders, process.contender(build.name, bearer))
		}
		results, err := l.compare(ctx, c)
		if err != nil {
			return err
		}
		this, another := results[thisBuild], results[anotherBuild]
		r.add(another)
		r.add(this,
			atLeast("cycles / -against", medianRatio(this.rates, another.rates), 0.97),
			atMost("writes", this.requests.writes/float64(max(1, this.counted)), 2.02, ""),
			atMost("reads", this.requests.reads/float64(max(1, this.counted)), 0.02, ""))
		return nil
	}
}

// tokenFacade is a process that serves the façade alone, without limits of callers where it has some.
type tokenFacade struct {
	command *exec.Cmd
	address string
}

// startTokenFacade starts the program with entries of the environment, such as NAME=value, besides its own.
func startTokenFacade(ctx context.Context, program, kubeconfig string, environment ...string) (*tokenFacade, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	arguments := []string{
		"--components=facade", "--kubeconfig=" + kubeconfig, "--leader-election-namespace=forrst-system",
		"--facade-bind-address=" + address, "--facade-auth=token", "--facade-audiences=" + tokenAudience,
		"--health-probe-bind-address=0", "--metrics-bind-address=0", "--facade-shutdown-delay=0s",
	}
	unlimited, err := knownFlags(ctx, program, "--facade-max-rate-per-caller=0", "--facade-max-rate-per-namespace=0", "--max-locks-per-namespace=0")
	if err != nil {
		return nil, err
	}
	//nolint:noctx // a signal ends it
	f := &tokenFacade{command: exec.Command(program, append(arguments, unlimited...)...), address: address}
	f.command.Env = append(os.Environ(), environment...)
	f.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := f.command.Start(); err != nil {
		return nil, err
	}
	if err := f.waitUntilItServes(ctx); err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

// contender returns the façade with callers who show the token. The comparison ends the process.
func (f *tokenFacade) contender(name, bearer string) contender {
	return contender{
		name: name, resource: "locks", operator: f.command.Process.Pid, stop: f.stop,
		open: func(ctx context.Context, client int) (locker, error) {
			connection, err := dialFacade(ctx, f.address)
			if err != nil {
				return nil, err
			}
			connection.header = "Authorization: Bearer " + bearer + "\r\n"
			return &facadeClient{connection: connection, owner: ownerOf(client)}, nil
		},
	}
}

// waitUntilItServes returns when the façade asks for a token.
func (f *tokenFacade) waitUntilItServes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ticker := time.NewTicker(startPoll)
	defer ticker.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.address+"/forrst", http.NoBody)
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

// stop ends the process. How it ends is of no interest: it has been measured.
func (f *tokenFacade) stop() {
	_ = f.command.Process.Signal(syscall.SIGTERM)
	_ = f.command.Wait()
}

// knownFlags returns those of the flags that the program has.
func knownFlags(ctx context.Context, program string, flags ...string) ([]string, error) {
	usage, err := exec.CommandContext(ctx, program, "--help").CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	known := map[string]bool{}
	for lines := bufio.NewScanner(strings.NewReader(string(usage))); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 {
			known["-"+fields[0]] = true
		}
	}
	var accepted []string
	for _, flag := range flags {
		if name, _, _ := strings.Cut(flag, "="); known[name] {
			accepted = append(accepted, flag)
		}
	}
	return accepted, nil
}

// freeAddress returns a loopback address that nothing listens on.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
