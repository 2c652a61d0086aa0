package cli

import (
	"context"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/cli/session"
)

// now is when the commands of tests run, unless their options have another clock.
var now = time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)

// result is what a command has printed, and its exit status.
type result struct {
	out, errOut string
	status      int
}

// String is for golden files.
func (r result) String() string {
	text := r.out
	if r.errOut != "" {
		text += "--- stderr\n" + r.errOut
	}
	return text
}

// run runs a command without a kubeconfig, the environment or a terminal. Options that
// are set count.
func run(t *testing.T, options session.Options, args ...string) result {
	t.Helper()
	t.Setenv("KUBECONFIG", "/nonexistent")
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	if options.Streams.In != nil {
		streams.In = options.Streams.In
	}
	options.Streams = streams
	if options.Clock == nil {
		options.Clock = clocktesting.NewFakeClock(now)
	}
	if options.Getenv == nil {
		options.Getenv = func(string) string { return "" }
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	status := Main(ctx, args, options)
	return result{out.String(), errOut.String(), status}
}
