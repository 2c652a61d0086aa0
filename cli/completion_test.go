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
