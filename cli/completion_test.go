package cli

import (
	"strings"
	"testing"

	"forrst.dev/lock-operator/cli/session"
)

func TestCompletion(t *testing.T) {
	for want, args := range map[string][]string{
		"billing:report deploy gone":      {"who", ""},
		"deploy":                          {"release", ""},
		"job/first job/second":            {"wait", "job/"},
		"job/second":                      {"free", "job/s"},
		"":                                {"acquire", "job/"},
		"billing:report gone":             {"run", "deploy", ""},
		"gone":                            {"run", "deploy", "--ttl", "1m", "billing:report", ""},
		"wait skip fail":                  {"run", "--on-busy", "s"},
		"expires held holder key waiters": {"list", "--sort", ""},
	} {
		options := session.Options{Cluster: as("carol@example.com", everything, fakeCluster(payments()...))}
		got := run(t, options, append([]string{"__complete", "-n", "payments"}, args...)...)
		var found []string
		for line := range strings.Lines(got.out) {
			if !strings.HasPrefix(line, ":") {
				found = append(found, strings.TrimSpace(line))
			}
		}
		if strings.Join(found, " ") != want {
			t.Errorf("%v: %q, want %q", args, found, want)
		}
	}
}

// Nothing right behind the -- tells it from a word before it, but the --.
func TestTheShellCompletesTheCommandOfARun(t *testing.T) {
	for _, args := range [][]string{{"run", "deploy", "--", ""}, {"run", "deploy", "--", "sh", ""}} {
		got := run(t, session.Options{Cluster: fakeCluster(payments()...)}, append([]string{"__complete", "-n", "payments"}, args...)...)
		if got.out != ":0\n" { // Cobra's number for the shell's own completion.
			t.Errorf("%v: %q", args, got.out)
		}
	}
}
