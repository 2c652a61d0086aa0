package durations_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"forrst.dev/lock-operator/cli/durations"
	"forrst.dev/lock-operator/lock"
)

func TestParse(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1.5h": 90 * time.Minute, "1d": day, "1d12h": 36 * time.Hour, "1w": 7 * day, "1w2d": 9 * day, "1y": 365 * day, "-1s": -time.Second,
	} {
		if got, err := durations.Parse(text); err != nil || got != want {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "d", "1d1d", "12h1d", "1 d", "soon", "99999999999w", "forever"} {
		if got, err := durations.Parse(text); err == nil {
			t.Errorf("%q: got %s", text, got)
		}
	}
}

func TestFlags(t *testing.T) {
	var ttl, wait time.Duration
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	durations.Var(flags, &ttl, "ttl", time.Minute, "")
	durations.VarOrForever(flags, &wait, "wait", 0, "")
	if ttl != time.Minute || flags.Lookup("ttl").DefValue != "1m0s" {
		t.Errorf("the default is %s", ttl)
	}
	if err := flags.Parse([]string{"--ttl=1d", "--wait=forever"}); err != nil || ttl != 24*time.Hour || wait != lock.WaitForever {
		t.Errorf("ttl %s, wait %s, %v", ttl, wait, err)
	}
	for wrong, want := range map[string]string{"--ttl=forever": "write one such as 90s, 1h30m or 2d", "--wait=": "write one such as 90s, 1h30m or 2d, or forever"} {
		if err := flags.Parse([]string{wrong}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v", wrong, err)
		}
	}
}
