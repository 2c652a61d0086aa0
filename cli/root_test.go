package cli

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/golden"
)

func TestHelpForCommandsThatExist(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"help", "wait"}, {"completion"}, {"completion", "bash"}} {
		if got := run(t, session.Options{}, args...); got.status != 0 || got.out == "" {
			t.Errorf("%v: status %d: %s", args, got.status, got)
		}
	}
}

func TestVersionOfABuild(t *testing.T) {
	local := func(modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: modified},
		}}
	}
	for want, got := range map[string]string{
		"v1": versionOf("v1", local("true")), "unknown": versionOf("", nil), "v2": versionOf("", &debug.BuildInfo{Main: debug.Module{Version: "v2"}}),
		"commit 0123456789ab": versionOf("", local("false")), "commit 0123456789ab, with changes": versionOf("", local("true")),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := versionOf("", &debug.BuildInfo{}); got != "unknown" {
		t.Errorf("%q without a revision", got)
	}
}

// The flags of one command must not know fewer units than those of another.
func TestEveryDurationIsOfOneGrammar(t *testing.T) {
	root := New(session.New(session.Options{Clock: clocktesting.NewFakeClock(now)}))
	found := 0
	for _, command := range append(root.Commands(), root) {
		command.Flags().VisitAll(func(flag *pflag.Flag) {
			if flag.Value.Type() != "duration" {
				return
			}
			found++
			if err := flag.Value.Set("1w2d"); err != nil {
				t.Errorf("%s --%s: %v", command.CommandPath(), flag.Name, err)
			}
		})
	}
	if found == 0 {
		t.Error("no flag was found")
	}
}

func TestEveryWaitMayBeForever(t *testing.T) {
	for name, flag := range map[string]string{"run": "wait", "acquire": "wait", "wait": "timeout"} {
		root := New(session.New(session.Options{Clock: clocktesting.NewFakeClock(now)}))
		command, args, err := root.Find([]string{name, "backup", "--" + flag, "forever"})
		if err != nil || command.Name() != name {
			t.Fatalf("%s: %v", name, err)
		}
		if err := command.ParseFlags(args); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := command.Flags().Lookup(flag).Value.String(); got != lock.WaitForever.String() {
			t.Errorf("%s --%s forever is %s", name, flag, got)
		}
	}
}

func TestVersionAsAFlag(t *testing.T) {
	command, flag := run(t, session.Options{Version: "v1.2.3"}, "version"), run(t, session.Options{Version: "v1.2.3"}, "--version")
	if flag != command || !strings.HasPrefix(flag.out, "kubectl-lock v1.2.3 (go") {
		t.Errorf("--version: %+v, version: %+v", flag, command)
	}
}

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
		{"run_that_skips_with_a_status", []string{"run", "x", "--on-busy", "skip", "--conflict-exit-code", "75", "--", "true"}, failure.Usage},
		{"status", []string{"status", "x"}, failure.Usage},
		{"get", []string{"get", "x"}, failure.Usage},
		{"describe", []string{"describe", "x"}, failure.Usage},
		{"unlock", []string{"unlock", "x"}, failure.Usage},
		{"mistyped_flag", []string{"list", "--namespcae", "x"}, failure.Usage},
		{"mistyped_flag_of_run", []string{"run", "x", "--onbusy", "skip", "--", "true"}, failure.Usage},
		{"dry_run_of_the_client", []string{"free", "x", "--dry-run=client"}, failure.Usage},
		{"dry_run_of_another_kind", []string{"free", "x", "--dry-run=all"}, failure.Usage},
		{"help_for_no_command", []string{"help", "nope"}, failure.Usage},
		{"completion_for_no_shell", []string{"completion", "foo"}, failure.Usage},
		{"no_kubeconfig", []string{"list", "--kubeconfig", "/nope"}, failure.Usage},
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
