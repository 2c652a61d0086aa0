package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

// A holder that ends after this command would be waited for without end.
func TestNoCommandWaitsForItsOwnHolder(t *testing.T) {
	stopped := clocktesting.NewFakeClock(now)
	locks := locktest.New(locktest.WithClock(stopped))
	held, err := locks.Acquire(t.Context(), "", lock.Request{Acquisition: rules.Acquisition{
		Key: "backup", Owner: "o", HolderRef: &v1alpha1.HolderReference{APIVersion: "batch/v1", Kind: "Job", Name: "nightly", UID: "1"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Acquire(t.Context(), "", lock.Request{Acquisition: rules.Acquisition{Key: "another", Owner: "p"}}); err != nil {
		t.Fatal(err)
	}
	token, err := held.FencingToken()
	if err != nil {
		t.Fatal(err)
	}
	runs, err := json.Marshal([]outerRun{{Key: "backup", FencingToken: token}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		pod  session.Pod
		runs string
		want string
	}{
		"an outer run":       {runs: string(runs), want: "backup is held by the kubectl lock run that has started this command, and waits for this command to end"},
		"the Job of the Pod": {pod: session.Pod{Namespace: "payments", Host: "nightly-x7k2p"}, want: "backup is held by Job nightly, which this Pod is part of, and waits for this command to end"},
	} {
		options := session.Options{Locks: locks, Clock: stopped, Pod: &test.pod, Getenv: func(name string) string {
			if name == outerVariable {
				return test.runs
			}
			return ""
		}}
		for _, args := range [][]string{{"wait", "backup"}, {"acquire", "backup", "--wait", "forever", "--owner-file", t.TempDir() + "/token"}} {
			t.Run(args[0]+" for "+name, func(t *testing.T) {
				if got := run(t, options, args...); got.status != int(failure.Busy) || !strings.Contains(got.errOut, test.want) {
					t.Errorf("status %d: %s", got.status, got)
				}
			})
		}
		t.Run("no advice to wait for "+name, func(t *testing.T) {
			got := run(t, options, "acquire", "backup", "--owner-file", t.TempDir()+"/token")
			if got.status != int(failure.Busy) || !strings.Contains(got.errOut, test.want) || strings.Contains(got.errOut, "--wait") {
				t.Errorf("status %d: %s", got.status, got)
			}
		})
		// To wait for another holder first would not be at once.
		for _, keys := range [][]string{{"backup"}, {"another", "backup"}} {
			t.Run(fmt.Sprintf("run %v for %s", keys, name), func(t *testing.T) {
				options := options
				options.Streams = genericiooptions.IOStreams{ErrOut: io.Discard}
				o := &runOptions{session: session.New(options), keys: keys, ttl: lock.DefaultTTL, wait: lock.WaitForever}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := o.acquire(ctx)
				if own, isOwn := errors.AsType[*ownHolderError](err); !isOwn || own.Error() != test.want {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// A key is another lock in another namespace and at another service, and another grant has another holder.
func TestAnOuterRunIsKnownByItsFields(t *testing.T) {
	run := func(server, namespace, key string, token int) string {
		return fmt.Sprintf(`{"server":%q,"namespace":%q,"key":%q,"fencingToken":%d}`, server, namespace, key, token)
	}
	const facade = "https://facade.example"
	own := run(facade, "payments", "backup", 1)
	for name, test := range map[string]struct {
		runs string
		want bool
	}{
		"the run":                      {"[" + own + "]", true},
		"the run, inside of another":   {"[" + run(facade, "payments", "deploy", 4) + "," + own + "]", true},
		"the run, around another":      {"[" + own + "," + run(facade, "payments", "deploy", 4) + "]", true},
		"a run at another service":     {runs: "[" + run("https://elsewhere.example", "payments", "backup", 1) + "]"},
		"a run in another namespace":   {runs: "[" + run(facade, "shop", "backup", 1) + "]"},
		"a run in its own namespace":   {runs: "[" + run(facade, "", "backup", 1) + "]"},
		"a run under another key":      {runs: "[" + run(facade, "payments", "deploy", 1) + "]"},
		"a run with an earlier grant":  {runs: "[" + run(facade, "payments", "backup", 0) + "]"},
		"a run with fields in no list": {runs: own},
		"no JSON":                      {runs: "backup"},
		"nothing":                      {},
	} {
		t.Run(name, func(t *testing.T) {
			locks := locktest.New(locktest.WithClock(clocktesting.NewFakeClock(now)))
			held, err := locks.Acquire(t.Context(), "payments", lock.Request{Acquisition: rules.Acquisition{Key: "backup", Owner: "o"}})
			if err != nil {
				t.Fatal(err)
			}
			s := session.New(session.Options{Locks: locks, Clock: clocktesting.NewFakeClock(now), Pod: &session.Pod{}, Getenv: func(name string) string {
				return map[string]string{"FORRST_LOCK_RUNS": test.runs}[name]
			}})
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			s.AddFlags(flags)
			if err := flags.Parse([]string{"--server", facade + "/", "-n", "payments"}); err != nil {
				t.Fatal(err)
			}
			_, isOwn := errors.AsType[*ownHolderError](checkOwnHolder(s, "lock:backup", held))
			if isOwn != test.want {
				t.Errorf("is taken for the holder: %t", isOwn)
			}
		})
	}
}

func TestIsOwnJob(t *testing.T) {
	job := func(name string) *v1alpha1.HolderReference { return &v1alpha1.HolderReference{Kind: "Job", Name: name} }
	for name, test := range map[string]struct {
		ref         *v1alpha1.HolderReference
		host, index string
		want        bool
	}{
		"a Pod of the Job":                         {ref: job("backup"), host: "backup-x7k2p", want: true},
		"a Pod of the indexed Job":                 {ref: job("backup"), host: "backup-3", index: "3", want: true},
		"a Pod of a Job with a long name":          {ref: job(strings.Repeat("b", 60)), host: strings.Repeat("b", 58) + "x7k2p", want: true},
		"a Pod of a Job with a longer name":        {ref: job("backup"), host: "backup-nightly-x7k2p"},
		"a Pod of a Job of the CronJob's":          {ref: job("backup"), host: "backup-29731680-x7k2p"},
		"another index, thus another Job's Pod":    {ref: job("backup"), host: "backup-4", index: "3"},
		"a Pod of another Job":                     {ref: job("restore"), host: "backup-x7k2p"},
		"a machine of the Job's name":              {ref: job("backup"), host: "backup"},
		"a lock that is held for a Pod":            {ref: &v1alpha1.HolderReference{Kind: "Pod", Name: "backup"}, host: "backup-x7k2p"},
		"a lock that is held for no object at all": {host: "backup-x7k2p"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isOwnJob(test.ref, test.host, test.index); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
