package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/test/support/golden"
)

func TestTheNameOfAnObjectInPlaceOfAKey(t *testing.T) {
	objects := append(append(payments(), holdingJob()...), podHolder()...)
	objects = append(objects, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "plain"}},
		heldLock("payments", "job/looks-like-one", nil), heldLock("payments", "lock:literal", nil), heldLock("payments", "literal", nil), waitingJob("idle", "idle", time.Minute))
	for _, test := range []struct {
		name   string
		args   []string
		status failure.Code
	}{
		{"wait_for_a_job", []string{"wait", "job/idle"}, 0},
		{"wait_for_a_key_like_a_job", []string{"wait", "job/looks-like-one", "--for", "held"}, 0},
		{"wait_for_no_job", []string{"wait", "job/nosuch"}, failure.Usage},
		{"free_of_a_job", []string{"free", "job/nightly", "--reason", "it hangs", "--yes"}, 0},
		{"free_of_a_waiting_job", []string{"free", "job/first", "--reason", "it hangs", "--yes"}, failure.NotHeld},
		{"free_of_a_pod", []string{"free", "pod/worker-0", "--reason", "it hangs", "--yes"}, 0},
		{"who_by_a_full_key", []string{"who", "lock:billing:report"}, 0},
		{"who_by_a_full_key_of_its_own", []string{"who", "lock:literal"}, 0},
		{"who_by_nearly_a_key", []string{"who", "BILLING"}, 0},
		{"wait_by_a_full_key", []string{"wait", "lock:billing:report", "--for", "held"}, 0},
		{"wait_by_nearly_a_key", []string{"wait", "biling:report"}, 0},
		{"free_by_a_full_key", []string{"free", "lock:deploy", "--dry-run"}, 0},
		{"free_by_a_full_key_without_a_question", []string{"free", "lock:deploy", "--yes"}, failure.Usage},
		{"free_by_nearly_a_key", []string{"free", "deploi", "--yes"}, failure.NotHeld},
		{"free_of_another_namespace", []string{"free", "stock", "--reason", "it hangs", "--yes"}, failure.NotHeld},
		{"who_is_no_job", []string{"who", "job/nosuch"}, failure.Usage},
		{"who_is_no_pod", []string{"who", "pod/nosuch"}, failure.Usage},
		{"who_is_a_pod_without_a_lock", []string{"who", "pod/nightly-x7k2p"}, failure.NotHeld},
		{"who_is_a_plain_job", []string{"who", "job/plain"}, failure.Usage},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := run(t, session.Options{Cluster: as("carol@example.com", everything, fakeCluster(objects...))}, append(test.args, "-n", "payments")...)
			golden.Check(t, "target/"+test.name+".txt", got.String())
			if got.status != int(test.status) {
				t.Errorf("exit status %d, want %d", got.status, test.status)
			}
		})
	}
}

// A Job's name is not taken as a KEY by mistake; a KEY that only looks like one is.
func TestANewLockIsNotNamedAfterAJob(t *testing.T) {
	s := session.New(session.Options{Cluster: fakeCluster(append(payments(), podHolder()...)...), Clock: clocktesting.NewFakeClock(now)})
	s.ErrOut = io.Discard
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.AddFlags(flags)
	if err := flags.Parse([]string{"-n", "payments"}); err != nil {
		t.Fatal(err)
	}
	for key, isRefused := range map[string]bool{"job/first": true, "pod/worker-0": true, "Jobs/first": true, "job/nosuch": false, "first": false, "jobs": false, "a/first": false} {
		if err := checkKey(t.Context(), s, key); (err != nil) != isRefused {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestANamespaceThatDoesNotExist(t *testing.T) {
	for _, args := range [][]string{
		{"wait", "a"}, {"who", "a"}, {"free", "a"}, {"list"}, {"thaw"}, {"who", "job/a"}, {"list", "-o", "name"},
	} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			got := run(t, session.Options{Cluster: as("carol@example.com", everything, fakeCluster(heldLock("payments", "other", nil)))}, append(args, "-n", "nosuch")...)
			const want = "error: namespace nosuch does not exist\n  → see the namespaces: kubectl get namespaces\n"
			if got.status != int(failure.Usage) || got.errOut != want || got.out != "" {
				t.Errorf("status %d: %s", got.status, got)
			}
		})
	}
}

func TestWaitTellsOfTheSameKeyElsewhere(t *testing.T) {
	got := run(t, session.Options{Cluster: fakeCluster(heldLock("shop", "stock", func(*v1alpha1.LockSpec) {}))}, "wait", "stock", "-n", "payments")
	if got.status != 0 || got.String() != "stock is free\n--- stderr\nnote: it is held in namespace shop\n" {
		t.Errorf("status %d: %s", got.status, got)
	}
}

func TestAFullKeyThroughAFacade(t *testing.T) {
	hand := newHand(t)
	hand.run("acquire", "deploy")
	options := session.Options{Locks: hand.backend, Clock: hand.clock}
	if got := run(t, options, "who", "lock:deploy"); got.status != 0 || !strings.HasPrefix(got.out, "Lock deploy\n  State       held") {
		t.Errorf("who: status %d: %s", got.status, got)
	}
	if got := run(t, options, "free", "lock:deploy", "--yes", "--reason", "it hangs"); got.status != int(failure.Usage) || !hand.isHeld("lock:deploy") {
		t.Errorf("free without a question: status %d: %s", got.status, got)
	}
	options.Streams.In = strings.NewReader("y\n")
	if got := run(t, options, "free", "lock:deploy", "--reason", "it hangs"); got.status != 0 || hand.isHeld("lock:deploy") {
		t.Errorf("free: status %d: %s", got.status, got)
	}
}

func TestANewLockOfAFullKeyIsNoted(t *testing.T) {
	hand := newHand(t)
	if got := hand.run("acquire", "lock:deploy"); got.status != 0 || !strings.HasPrefix(got.errOut, "note: lock:deploy is taken as a KEY; it is another lock than deploy\n") {
		t.Errorf("status %d: %s", got.status, got)
	}
}
