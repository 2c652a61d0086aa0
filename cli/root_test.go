package cli

import (
	"testing"

	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/test/support/golden"
)

func TestRoot(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   []string
		status failure.Code
	}{
		{"unknown_command", []string{"verzion"}, failure.Usage},
		{"unknown_flag", []string{"version", "--wat"}, failure.Usage},
		{"too_many_arguments", []string{"version", "1"}, failure.Usage},
		{"run_without_dashes", []string{"run", "x", "sh", "-c", "true"}, failure.Usage},
		{"run_with_a_short_ttl", []string{"run", "x", "--ttl", "1s", "--", "true"}, failure.Usage},
		{"run_with_a_long_grace", []string{"run", "x", "--ttl", "10s", "--grace", "9s", "--", "true"}, failure.Usage},
		{"context_of_a_facade", []string{"version", "--server=http://127.0.0.1:1", "--context=a"}, failure.Usage},
		{"token_without_a_facade", []string{"version", "--token-file=a"}, failure.Usage},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := run(t, session.Options{}, test.args...)
			if got.status != int(test.status) {
				t.Errorf("exit status %d, want %d", got.status, test.status)
			}
			golden.Check(t, "root/"+test.name+".txt", got.String())
		})
	}
}
