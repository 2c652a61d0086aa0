package main

import (
	"cmp"
	"flag"
	"fmt"
	"strings"
	"testing"

	"forrst.dev/lock-operator/test/support/golden"
)

// TestFlagsPage compares docs/flags.md with the flags. "make generate" writes it.
func TestFlagsPage(t *testing.T) {
	var o options
	flags := flag.NewFlagSet("lock-operator", flag.ContinueOnError)
	o.bindFlags(flags)
	var page strings.Builder
	page.WriteString(`# Flags of lock-operator

"make generate" writes this page from the flags of the program. [operations.md](operations.md) explains the limits.
--kubeconfig names the API server to use; in a pod it is that of the cluster. --zap-log-level is info, debug, or a
number up to 5; debug adds a line for each refused change, each reaped lock and each fault of a connection.

| flag | default | meaning |
| --- | --- | --- |
`)
	flags.VisitAll(func(f *flag.Flag) {
		fmt.Fprintf(&page, "| `--%s` | %s | %s |\n", f.Name, cmp.Or(f.DefValue, "none"), f.Usage)
	})
	golden.CheckFile(t, "../../docs/flags.md", page.String())
}
