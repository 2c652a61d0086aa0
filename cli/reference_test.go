package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/util/homedir"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/test/support/golden"
)

// TestReference compares docs/cli-reference.md with the help of all commands. "make
// generate" writes it.
func TestReference(t *testing.T) {
	root := New(session.New(session.Options{Clock: clocktesting.NewFakeClock(now)}))
	root.InitDefaultHelpCmd()
	var page strings.Builder
	page.WriteString(`# Reference of kubectl lock

"make generate" writes this page from the help of the program. [cli.md](cli.md) explains the commands.
`)
	for _, command := range root.Commands() {
		if command.IsAvailableCommand() {
			document(&page, command)
		}
	}
	page.WriteString("\n## Flags of all commands\n\n```\n" + usages(root.PersistentFlags()) + "```\n")
	golden.CheckFile(t, "../docs/cli-reference.md", page.String())
}

func document(page *strings.Builder, command *cobra.Command) {
	fmt.Fprintf(page, "\n## %s\n\n", command.CommandPath())
	fmt.Fprintf(page, "```\n%s\n```\n\n", command.UseLine())
	text := command.Long
	if text == "" {
		text = command.Short + "."
	}
	page.WriteString(strings.TrimSpace(text) + "\n")
	if command.Example != "" {
		fmt.Fprintf(page, "\n```sh\n%s\n```\n", unindented(command.Example))
	}
	if flags := usages(command.LocalNonPersistentFlags()); flags != "" {
		fmt.Fprintf(page, "\n```\n%s```\n", flags)
	}
}

// usages leaves out what differs between machines.
func usages(flags *pflag.FlagSet) string {
	text := flags.FlagUsagesWrapped(100)
	if home := homedir.HomeDir(); home != "" {
		text = strings.ReplaceAll(text, home, "~")
	}
	return text
}

func unindented(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimPrefix(strings.TrimRight(line, "\n"), "  "))
	}
	return strings.Join(lines, "\n")
}
