// Command kubectl-lock is the plugin "kubectl lock": it shows who holds a lock, and
// runs programs under one. Package cli has its commands.
package main

import (
	"context"
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/cli"
	"forrst.dev/lock-operator/cli/session"
)

// linkedVersion is set by the linker: -ldflags="-X main.linkedVersion=v0.1.0".
var linkedVersion string

func main() {
	os.Exit(cli.Main(context.Background(), cli.Args(os.Args), session.Options{
		Streams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Clock:   clock.RealClock{},
		Getenv:  os.Getenv,
		Version: linkedVersion,
	}))
}
