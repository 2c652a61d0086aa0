// Command gotest runs "go test" and keeps what it said, so that a run can be looked into after it has ended.
//
//	gotest -log bin/reports/unit.json -- -race ./...
//	gotest -log bin/reports/chart.json -C test/chart -- ./...
//	gotest -slowest 10 bin/reports
//
// The first prints what "go test" prints without -v: a line for each package, and all that a failed test has said. The log
// holds the events of "go test -json". The second prints the packages, tests and Ginkgo specs that took the longest, from
// the logs in a folder and the reports of Ginkgo beside them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Exited() {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string, out, errs io.Writer) error {
	flags := flag.NewFlagSet("gotest", flag.ContinueOnError)
	flags.SetOutput(errs)
	log := flags.String("log", "", "file for the events of go test -json")
	folder := flags.String("C", "", "folder to run go test in")
	slowest := flags.Int("slowest", 0, "print a table of so many packages, tests and specs from the logs in a folder")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *slowest > 0 {
		return printSlowest(out, flags.Arg(0), *slowest)
	}
	if *log == "" {
		return errors.New("-log names no file")
	}
	return test(ctx, *log, *folder, flags.Args(), out, errs)
}

// test runs "go test", and returns its error after all of its output has been read.
func test(ctx context.Context, log, folder string, arguments []string, out, errs io.Writer) (err error) {
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return err
	}
	events, err := os.Create(log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	command := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, arguments...)...)
	// The tests end what they have started before they end.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.Dir, command.Stderr = folder, errs
	stdout, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	printErr := printEvents(io.TeeReader(stdout, events), out)
	_, _ = io.Copy(io.Discard, stdout) // After an error, what is left of its output must not block the command.
	return errors.Join(command.Wait(), printErr)
}
