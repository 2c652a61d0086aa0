// Command replica is an operator replica for the robustness test: façade, engine, cache,
// reaper and election are the product's. It adds two things. The local clock can be
// stepped, and the process ends with its standard input, so it does not outlive a killed
// test.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

func main() {
	var settings settings
	flag.StringVar(&settings.namespace, "namespace", "default", "The namespace of the locks.")
	flag.DurationVar(&settings.allowance, "clock-skew-allowance", time.Second, "As for the operator.")
	flag.Parse() // --kubeconfig is a flag of controller-runtime.
	ctrl.SetLogger(zap.New())
	klog.SetLogger(ctrl.Log)

	if err := run(settings, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		os.Exit(1)
	}
}

// run writes the address of the façade to out, and obeys the commands from in until in
// ends.
func run(settings settings, in io.Reader, out io.Writer) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	local := &steppedClock{}
	manager, address, err := newManager(config, settings, local)
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

// obey reads lines like "clock 1h", which sets how far the clock is ahead.
func obey(in io.Reader, local *steppedClock) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "clock ")
		offset, err := time.ParseDuration(text)
		if !ok || err != nil {
			fmt.Fprintf(os.Stderr, "replica: unknown command %q\n", lines.Text())
			continue
		}
		local.set(offset)
		ctrl.Log.Info("Stepped the clock", "offset", offset.String())
	}
}
