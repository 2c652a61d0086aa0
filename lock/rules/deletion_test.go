package rules

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// live is a lock that alice holds from noon for 30 seconds.
func live(t *testing.T) *v1alpha1.Lock {
	t.Helper()
	lock, _, err := AdmitCreate(manifest(), User{Name: "alice"}, DefaultLimits(), noon)
	if err != nil {
		t.Fatal(err)
	}
	lock.ResourceVersion = "7"
	return lock
}

func withReason(lock *v1alpha1.Lock, reason string) *v1alpha1.Lock {
	lock = lock.DeepCopy()
	lock.Annotations = map[string]string{v1alpha1.ForceReleaseReasonAnnotation: reason}
	return lock
}

func TestWithoutFinalizers(t *testing.T) {
	stuck := func(change func(*v1alpha1.Lock)) *v1alpha1.Lock {
		lock := live(t)
		lock.Finalizers = []string{"foregroundDeletion"}
		change(lock)
		return lock
	}
	cases := map[string]struct {
		lock *v1alpha1.Lock
		// want is the recorded token of the object to write; nil if none is recorded.
		want *int64
	}{
		"a grant":                  {lock: stuck(func(*v1alpha1.Lock) {}), want: new(int64(7))},
		"a token that is recorded": {lock: stuck(func(lock *v1alpha1.Lock) { lock.Spec.FencingToken = new(int64(5)) }), want: new(int64(5))},
		"a grant that is being deleted": {lock: stuck(func(lock *v1alpha1.Lock) {
			lock.DeletionTimestamp = &metav1.Time{Time: noon}
		})},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			next, err := WithoutFinalizers(test.lock)
			if err != nil || next == nil {
				t.Fatalf("got %v, %v", next, err)
			}
			if len(next.Finalizers) > 0 || next.ResourceVersion != test.lock.ResourceVersion || len(test.lock.Finalizers) != 1 {
				t.Errorf("got %+v from %+v", next.ObjectMeta, test.lock.ObjectMeta)
			}
			if diff := cmp.Diff(test.want, next.Spec.FencingToken); diff != "" {
				t.Errorf("token (-want +got):\n%s", diff)
			}
		})
	}
	if next, err := WithoutFinalizers(live(t)); next != nil || err != nil {
		t.Errorf("a lock without finalizers: got %v, %v", next, err)
	}
}

func TestMayEnd(t *testing.T) {
	cases := map[string]bool{
		"alice": true,
		"bob":   false,
		"system:serviceaccount:kube-system:generic-garbage-collector": true,
		"system:serviceaccount:kube-system:namespace-controller":      true,
		"system:kube-controller-manager":                              true,
		"system:serviceaccount:default:generic-garbage-collector":     false,
		"system:serviceaccount:kube-system:job-controller":            false,
		"system:masters": false,
	}
	for user, want := range cases {
		t.Run(user, func(t *testing.T) {
			if got := MayEnd(live(t), User{Name: user}); got != want {
				t.Errorf("got %t, want %t", got, want)
			}
		})
	}
}

func TestForceReason(t *testing.T) {
	if got, err := ForceReason(withReason(live(t), " the node burnt down\n")); err != nil || got != "the node burnt down" {
		t.Errorf("got %q, %v", got, err)
	}
	for name, lock := range map[string]*v1alpha1.Lock{"none": live(t), "white space": withReason(live(t), " \t")} {
		t.Run(name, func(t *testing.T) {
			_, err := ForceReason(lock)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "kubectl annotate lock billing--report -n default "+v1alpha1.ForceReleaseReasonAnnotation) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNeedsForce(t *testing.T) {
	lock := live(t)
	cases := map[string]struct {
		old, next *v1alpha1.Lock
		user      string
		after     time.Duration
		want      bool
	}{
		"another user gives a reason":              {lock, withReason(lock, "because"), "bob", 0, true},
		"another user changes it":                  {withReason(lock, "a"), withReason(lock, "b"), "bob", 0, true},
		"a stranger removes it":                    {withReason(lock, "a"), lock, "bob", 0, true},
		"a stranger leaves it":                     {withReason(lock, "a"), withReason(lock, "a"), "bob", 0, false},
		"the holder removes it":                    {withReason(lock, "a"), lock, "alice", 0, false},
		"the lock has expired, but not for others": {lock, withReason(lock, "because"), "bob", 30 * time.Second, true},
		"the lock has expired by any clock":        {lock, withReason(lock, "because"), "bob", 31 * time.Second, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			change := Change{Old: test.old, Updated: test.next, User: User{Name: test.user}}
			if got := change.NeedsForce(test.next, noon.Add(test.after), time.Second); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// The reason given for one grant does not apply to the next.
func TestForceReasonGoesWithTheGrant(t *testing.T) {
	said := withReason(live(t), "because")
	annotate := func(change func(*v1alpha1.Lock)) *v1alpha1.Lock {
		next := said.DeepCopy()
		change(next)
		return next
	}
	cases := map[string]struct {
		updated *v1alpha1.Lock
		user    string
		after   time.Duration
		want    string
	}{
		"a label keeps it":      {annotate(func(l *v1alpha1.Lock) { l.Labels = map[string]string{"a": "b"} }), "bob", 0, "because"},
		"a renewal keeps it":    {annotate(func(l *v1alpha1.Lock) { l.Spec.TTL.Duration = time.Minute }), "alice", 0, "because"},
		"a take-over drops it":  {annotate(func(l *v1alpha1.Lock) { l.Spec.Owner = "token-b" }), "bob", time.Hour, ""},
		"a take-over sets none": {withReason(annotate(func(l *v1alpha1.Lock) { l.Spec.Owner = "token-b" }), "mine"), "bob", time.Hour, ""},
		"acquiring it again, by the same holder and owner, drops it": {
			annotate(func(l *v1alpha1.Lock) { l.Annotations[v1alpha1.AcquisitionAnnotation] = "2" }), "alice", time.Hour, ""},
		"a hand-off drops it": {annotate(func(l *v1alpha1.Lock) {
			l.Spec.Owner = "token-b"
			l.Annotations[v1alpha1.RequestAnnotation] = v1alpha1.RequestHandOff
		}), "alice", 0, ""},
		"the holder changes it in vain": {withReason(said, "mine"), "alice", 0, "because"},
		"the holder removes it in vain": {live(t), "alice", 0, "because"},
		"the holder renews and removes it in vain": {func() *v1alpha1.Lock {
			next := live(t)
			next.Spec.TTL.Duration = time.Minute
			return next
		}(), "alice", 0, "because"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got, _, err := AdmitUpdate(Change{Old: said, Updated: test.updated, User: User{Name: test.user}}, DefaultLimits(), noon.Add(test.after), 0)
			if err != nil {
				t.Fatal(err)
			}
			if reason := got.Annotations[v1alpha1.ForceReleaseReasonAnnotation]; reason != test.want {
				t.Errorf("got %q, want %q", reason, test.want)
			}
		})
	}
	own, _, err := AdmitUpdate(Change{Old: live(t), Updated: withReason(live(t), "mine"), User: User{Name: "alice"}}, DefaultLimits(), noon, 0)
	if err != nil || own.Annotations != nil {
		t.Errorf("the holder says on its own lock %v, %v", own.Annotations, err)
	}
	created, _, err := AdmitCreate(withReason(manifest(), "because"), User{Name: "alice"}, DefaultLimits(), noon)
	if err != nil || created.Annotations != nil {
		t.Errorf("a new lock has %v, %v", created.Annotations, err)
	}
}

func TestForceReasonIsBounded(t *testing.T) {
	lock := live(t)
	for length, want := range map[int]bool{MaxReasonLength: true, MaxReasonLength + 1: false} {
		reason := strings.Repeat("ä", length)
		_, _, err := AdmitUpdate(Change{Old: lock, Updated: withReason(lock, reason), User: User{Name: "bob"}}, DefaultLimits(), noon, 0)
		if (err == nil) != want {
			t.Errorf("%d characters: got %v", utf8.RuneCountInString(reason), err)
		}
	}
}
