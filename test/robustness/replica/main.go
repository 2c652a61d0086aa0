// Command replica is an operator replica for the robustness test: façade, engine, cache,
// reaper and election are the product's. It adds three things. The local clock can be
// stepped and suspended. A prober reports whether requests get through. The process ends with
// its standard input, so it does not outlive a killed test.
//
// With --hold it is no replica but a program with the SDK, which holds locks.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"forrst.dev/lock-operator/lock/engine"
)

func main() {
	var settings settings
	flag.StringVar(&settings.namespace, "namespace", "default", "The namespace of the locks.")
	flag.StringVar(&settings.address, "address", "127.0.0.1:0", "Where the façade listens that authenticates no callers.")
	flag.StringVar(&settings.tokenAddress, "token-address", "127.0.0.1:0", "Where the façade listens that authenticates its callers.")
	flag.DurationVar(&settings.allowance, "clock-skew-allowance", engine.DefaultClockSkewAllowance, "As for the operator.")
	flag.StringVar(&settings.name, "name", "", "The name of this replica among its peers.")
	flag.StringVar(&settings.peersFolder, "peers-folder", "", "The folder with what replicas need that share lines; empty for lines of its own.")
	flag.StringVar(&settings.peersAddress, "peers-address", "127.0.0.1:0", "Where it serves its peers.")
	facade := flag.String("hold", "", "The address of a façade: hold its locks, and be no replica.")
	flag.Parse() // --kubeconfig is a flag of controller-runtime.
	ctrl.SetLogger(zap.New())
	klog.SetLogger(ctrl.Log)

	start := func() error { return run(settings, os.Stdin, os.Stdout) }
	if *facade != "" {
		start = func() error { return hold(*facade, settings.namespace, os.Stdin, &reports{out: os.Stdout}) }
	}
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		os.Exit(1)
	}
}

// run writes the addresses of the façades to out, in one line, and then its reports, and obeys the commands
// from in until in ends.
func run(settings settings, in io.Reader, out io.Writer) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	local, reports := &steppedClock{}, &reports{out: out}
	manager, addresses, err := newManager(config, settings, local, reports)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		obey(in, func(line string) error { return change(local, line, reports) })
	}()
	fmt.Fprintln(out, strings.Join(addresses, " "))
	return manager.Start(ctx)
}

// obey reads commands, one a line.
func obey(in io.Reader, carryOut func(line string) error) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := carryOut(lines.Text()); err != nil {
			fmt.Fprintln(os.Stderr, "replica:", err)
			continue
		}
		ctrl.Log.Info("Carried out", "command", lines.Text())
	}
}

// change carries out "step 1h", which moves the wall clock, "pause 2s", which leaves the clock behind, "drift 1", which makes
// it run 1 % too fast, and "suspend", see [steppedClock.suspend].
func change(local *steppedClock, line string, reports *reports) error {
	command, value, _ := strings.Cut(line, " ")
	switch command {
	case "step":
		by, err := time.ParseDuration(value)
		local.step(by)
		return err
	case "pause":
		length, err := time.ParseDuration(value)
		local.pause(length)
		return err
	case "suspend":
		local.suspend(func() { reports.write("suspending") })
		return nil
	case "drift":
		percent, err := strconv.Atoi(value)
		local.drift(percent)
		return err
	}
	return fmt.Errorf("unknown command %q", line)
}
