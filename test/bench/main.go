// Command bench measures the locks of this project against what they are built on and
// against their peers, on a development cluster of its own, and fails if a figure
// misses what it must reach. See docs/performance.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// errMissed says that a figure misses what it must reach.
var errMissed = errors.New("at least one figure misses what it must reach")

// scenarioTimeout is when a scenario is given up; taking 100,000 locks is the longest.
const scenarioTimeout = 15 * time.Minute

// errStuck says that a scenario was given up.
var errStuck = errors.New("it did not come to an end")

func main() {
	if slices.Equal(os.Args[1:], []string{echoCommand}) {
		if err := runEcho(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: echo:", err)
			os.Exit(1)
		}
		return
	}
	settings, err := parseOptions(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	// With SIGPIPE, since a reader of the output that has gone must not leave a cluster.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	err = run(ctx, settings, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run starts the cluster, runs every chosen scenario and prints what came of it. A
// scenario that fails does not keep the others from running.
func run(ctx context.Context, settings options, out io.Writer) (err error) {
	started := time.Now()
	if err := raiseFileLimit(); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "Starting the cluster")
	lab, err := openLab(ctx, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.close()) }()

	report := &report{}
	for _, scenario := range settings.scenarios() {
		fmt.Fprintf(os.Stderr, "%5.0fs  %s\n", time.Since(started).Seconds(), scenario.name)
		limited, cancel := context.WithTimeoutCause(ctx, scenarioTimeout, errStuck)
		if err := scenario.run(limited, lab, report); err != nil {
			report.fail(scenario.name, err)
		}
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	report.print(out)
	fmt.Fprintf(out, "\nTook %.0fs\n", time.Since(started).Seconds())
	if report.missed() {
		return errMissed
	}
	return nil
}
