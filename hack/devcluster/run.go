package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// errStopped is the cause of a context that a signal ended.
var errStopped = errors.New("interrupted")

// run starts a cluster and keeps it until a signal, which is no error, or until a component
// fails. When it returns, all processes have ended.
func run(opts options, out io.Writer) error {
	ctx, hurry := stopSignals()

	dir := stateDir(opts.dir)
	claim, err := dir.claim()
	if err != nil {
		return err
	}
	defer func() { _ = claim.Close() }()
	facade, err := preflight(ctx, opts)
	if err != nil {
		return err
	}
	c, err := newCluster(ctx, opts, facade, out)
	if err != nil {
		return err
	}
	defer c.ports.release()
	c.supervisor, ctx = newSupervisor(ctx, dir, claim)

	err = c.keep(ctx)
	fmt.Fprintln(out, "Stopping the development cluster")
	c.supervisor.stop(out, hurry)

	// The cause of the context's end explains all later failures.
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// stopSignals returns a context that the first stop signal ends, with errStopped as its
// cause, and a channel that the second signal closes.
func stopSignals() (ctx context.Context, hurry <-chan struct{}) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// SIGHUP: the terminal has gone. nohup makes the process ignore it.
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	second := make(chan struct{})
	go func() {
		<-signals
		stop(errStopped)
		<-signals
		close(second)
	}()
	return ctx, second
}
