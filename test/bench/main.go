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

	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

// errStuck says that a scenario exceeded its time.
var errStuck = errors.New("the scenario did not finish in time")

func main() {
	if slices.Equal(os.Args[1:], []string{lab.EchoCommand}) {
		if err := lab.RunEcho(os.Stdin, os.Stdout); err != nil {
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

// run measures, prints the report, and writes it into the page of -report.
func run(ctx context.Context, settings options, out io.Writer) error {
	if err := measure.RaiseFileLimit(); err != nil {
		return err
	}
	about, err := describe(settings)
	if err != nil {
		return err
	}
	machine, err := measure.NewMachine()
	if err != nil {
		return err
	}
	result, err := measureAll(ctx, settings, machine, &about)
	if result == nil {
		return err
	}
	// Also what an interrupted run has measured is of use, but not in a page.
	result.Print(out)
	fmt.Fprintf(out, "\nTook %.0fs\n", about.Took.Seconds())
	if ctx.Err() != nil {
		return err
	}
	if settings.page != "" {
		if writeErr := writePage(settings, result, about); writeErr != nil {
			return errors.Join(err, fmt.Errorf("write %s: %w", settings.page, writeErr))
		}
	}
	return errors.Join(err, verdict(result))
}

// verdict fails if a figure misses its bound, or could not be judged.
func verdict(result *report.Report) error {
	var failures []error
	if missed := result.Missed(); missed > 0 {
		failures = append(failures, fmt.Errorf("%d figures miss their bounds or could not be measured", missed))
	}
	if unjudged := result.Unjudged(); unjudged > 0 {
		failures = append(failures, fmt.Errorf("the machine was too busy to judge %d figures; run it when nothing else runs", unjudged))
	}
	return errors.Join(failures...)
}

// measureAll starts the cluster and runs every chosen scenario. After a failed scenario it runs the others.
func measureAll(ctx context.Context, settings options, machine *measure.Machine, about *report.About) (result *report.Report, err error) {
	started := time.Now()
	fmt.Fprintln(os.Stderr, "Starting the cluster")
	opened, err := lab.Open(ctx, settings.Options, machine)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	about.Kubernetes, about.Etcd = opened.Versions.Kubernetes, opened.Versions.Etcd
	result = &report.Report{}
	for _, scenario := range settings.scenarios() {
		fmt.Fprintf(os.Stderr, "%5.0fs  %s\n", time.Since(started).Seconds(), scenario.Name)
		limited, cancel := context.WithTimeoutCause(ctx, settings.scenarioTimeout, errStuck)
		if err := scenario.Run(limited, opened, result); err != nil {
			result.Fail(scenario.Name, err)
		}
		cancel()
		if ctx.Err() != nil {
			return result, context.Cause(ctx)
		}
	}
	about.Took = time.Since(started)
	return result, nil
}
