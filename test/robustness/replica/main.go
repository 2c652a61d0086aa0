// Command replica is an operator replica for the robustness test: façade, engine, cache,
// reaper and election are the product's. It adds three things. The local clock can be
// stepped. A prober reports whether requests get through. The process ends with its
// standard input, so it does not outlive a killed test.
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
)

func main() {
	var settings settings
	flag.StringVar(&settings.namespace, "namespace", "default", "The namespace of the locks.")
	flag.StringVar(&settings.address, "address", "127.0.0.1:0", "Where the façade listens.")
	flag.DurationVar(&settings.allowance, "clock-skew-allowance", time.Second, "As for the operator.")
	flag.Parse() // --kubeconfig is a flag of controller-runtime.
	ctrl.SetLogger(zap.New())
	klog.SetLogger(ctrl.Log)

	if err := run(settings, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		os.Exit(1)
	}
}

// run writes the address of the façade to out and then its reports, and obeys the commands
// from in until in ends.
func run(settings settings, in io.Reader, out io.Writer) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	local := &steppedClock{}
	manager, address, err := newManager(config, settings, local, &reports{out: out})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		obey(in, local)
	}()
	fmt.Fprintln(out, address)
	return manager.Start(ctx)
}

// obey reads lines like "step 1h", which moves the clock, and "drift 1", which makes it run
// 1 % too fast.
func obey(in io.Reader, local *steppedClock) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := change(local, lines.Text()); err != nil {
			fmt.Fprintln(os.Stderr, "replica:", err)
			continue
		}
		ctrl.Log.Info("Changed the clock", "command", lines.Text())
	}
}

func change(local *steppedClock, line string) error {
	command, value, _ := strings.Cut(line, " ")
	switch command {
	case "step":
		by, err := time.ParseDuration(value)
		local.step(by)
		return err
	case "drift":
		percent, err := strconv.Atoi(value)
		local.drift(percent)
		return err
	}
	return fmt.Errorf("unknown command %q", line)
}
