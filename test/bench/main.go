// Command bench starts a development cluster, measures the locks of this project against
// their building blocks and against their peers, and fails if a figure misses its bound. See
// docs/performance.md.
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

// errMissed says that a figure misses its bound.
var errMissed = errors.New("at least one figure misses its bound")

// scenarioTimeout bounds a scenario. Acquiring 100,000 locks takes longest.
const scenarioTimeout = 15 * time.Minute

// errStuck says that a scenario exceeded scenarioTimeout.
var errStuck = errors.New("the scenario did not finish in time")

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
	// With SIGPIPE, so the cluster also ends if the reader of the output has gone.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	err = run(ctx, settings, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run starts the cluster, runs every chosen scenario and prints the report. After a failed
// scenario it runs the others.
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
