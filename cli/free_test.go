package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/golden"
)

func TestFree(t *testing.T) {
	for _, test := range []struct {
		name, answer string
		objects      []client.Object
		args         []string
		status       failure.Code
	}{
		{"a_job", "y\n", append(payments(), holdingJob()...), []string{"billing:report", "--reason", "it hangs"}, 0},
		{"a_job_for_sure", "", append(payments(), holdingJob()...), []string{"billing:report", "--reason", "it hangs", "--yes"}, 0},
		{"a_job_without_a_lock", "y\n", append(payments(), behindBilling()...), []string{"billing:report", "--reason", "it hangs"}, 0},
		{"a_job_of_another_lock", "y\n", append(payments(), waitingJob("nightly", "other", time.Hour)), []string{"billing:report", "--reason", "it hangs"}, 0},
		{"the_answer_no", "n\n", append(payments(), holdingJob()...), []string{"billing:report", "--reason", "it hangs"}, failure.Failed},
		{"no_answer", "", payments(), []string{"billing:report", "--reason", "it hangs"}, failure.Failed},
		{"a_job_that_waits_for_pods", "n\n", blockedJob(), []string{"billing:report", "--reason", "it hangs"}, failure.Failed},
		{"a_job_without_pods", "n\n", append(payments(), withoutPods()...), []string{"billing:report", "--reason", "it hangs"}, failure.Failed},
		{"a_job_about_to_start", "n\n", blockedJob()[:2], []string{"billing:report", "--reason", "it hangs"}, failure.Failed},
		{"a_dry_run_without_a_value_or_a_reason", "", append(payments(), holdingJob()...), []string{"billing:report", "--dry-run"}, 0},
		{"a_reason_is_required", "", payments(), []string{"billing:report", "--yes"}, failure.Usage},
		{"mine", "y\n", payments(), []string{"deploy"}, 0},
		{"with_the_flag_of_others", "", payments(), []string{"deploy", "--force"}, failure.Usage},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := session.Options{
				Cluster: as("carol@example.com", everything, fakeCluster(test.objects...)),
				Streams: genericiooptions.IOStreams{In: strings.NewReader(test.answer)},
			}
			got := run(t, options, append([]string{"free", "-n", "payments"}, test.args...)...)
			golden.Check(t, "free/"+test.name+".txt", got.String())
			if got.status != int(test.status) {
				t.Errorf("exit status %d, want %d", got.status, test.status)
			}
		})
	}
}

// A façade ends the grant that was shown, and no later one.
func TestSaysThatTheGrantHasEnded(t *testing.T) {
	backend := locktest.New()
	acquire := func(ctx context.Context, owner string) {
		if _, err := backend.Acquire(ctx, "", lock.Request{Acquisition: rules.Acquisition{Key: "k", Owner: owner, TTL: time.Minute}}); err != nil {
			t.Error(err)
		}
	}
	acquire(t.Context(), "a")
	backend.SetHooks(locktest.Hooks{Before: func(ctx context.Context, call locktest.Call) error {
		if call.Verb == locktest.ForceRelease {
			backend.SetHooks(locktest.Hooks{})
			if err := backend.Release(ctx, "", "lock:k", lock.Proof{Owner: "a"}); err != nil {
				t.Error(err)
			}
			acquire(ctx, "b")
		}
		return nil
	}})
	got := run(t, session.Options{Locks: backend}, "free", "k", "--reason", "it hangs", "--yes")
	if got.status != int(failure.NotHeld) || !strings.Contains(got.errOut, "the grant of k that was shown has ended meanwhile; nothing was done") {
		t.Error(got)
	}
}
