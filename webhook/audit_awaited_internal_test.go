package webhook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/rules"
)

func TestAwaited(t *testing.T) {
	began := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	at := func(after time.Duration) *v1alpha1.Timestamp { return new(v1alpha1.NewTimestamp(began.Add(after))) }
	stored := func(holder string, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
		lock := &v1alpha1.Lock{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "k", UID: "uid", ResourceVersion: "7"},
			Spec:       v1alpha1.LockSpec{Key: "k", Owner: "token", Holder: holder, AcquireTime: at(0), RenewTime: at(0), ExpireTime: at(time.Minute)},
		}
		for _, change := range changes {
			change(lock)
		}
		return lock
	}
	renewed := func(l *v1alpha1.Lock) { l.Spec.RenewTime, l.ResourceVersion = at(time.Second), "8" }
	other := func(l *v1alpha1.Lock) { l.UID = types.UID("other") }
	released := audit.Ended(audit.Released, audit.ByOwner, audit.Admission, "alice", stored("alice"), began.Add(time.Second))
	forced := audit.Ended(audit.ForceReleased, audit.ByForce, audit.Admission, "bob", stored("alice"), began.Add(time.Second))

	cases := map[string]struct {
		do   func(a *awaited, now *clocktesting.FakePassiveClock)
		want []string
	}{
		"a grant that shows": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.grant(stored("alice"), audit.Granted, nil)
			a.OnAdd(stored("alice"), false)
		}, []string{"Granted alice"}},
		"a grant that shows again after a relist": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.grant(stored("alice"), audit.Granted, nil)
			a.OnAdd(stored("alice"), true)
			a.OnUpdate(stored("alice"), stored("alice"))
		}, []string{"Granted alice"}},
		"a grant that shows as it is after a renewal": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.grant(stored("alice"), audit.Granted, nil)
			a.renewal(stored("alice", renewed), "alice")
			a.OnAdd(stored("alice", renewed), false)
		}, []string{"Granted alice", "Renewed alice"}},
		"a grant that another user has won": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.grant(stored("alice"), audit.Granted, nil)
			a.OnAdd(stored("bob"), false)
		}, nil},
		"a grant that was tried twice and happened once": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.grant(stored("alice"), audit.Granted, nil)
			a.grant(stored("alice"), audit.Granted, nil)
			a.OnAdd(stored("alice"), false)
			a.OnUpdate(nil, stored("alice"))
		}, []string{"Granted alice"}},
		"a grant that shows too late": {func(a *awaited, now *clocktesting.FakePassiveClock) {
			a.grant(stored("alice"), audit.Granted, nil)
			now.SetTime(now.Now().Add(awaitedFor + time.Second))
			a.OnAdd(stored("alice"), false)
		}, nil},
		"a renewal that did not happen": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.renewal(stored("alice", renewed), "alice")
			a.OnUpdate(nil, stored("alice"))
		}, nil},
		"an end": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.end(released)
			a.OnUpdate(nil, stored("alice"))
			a.OnDelete(stored("alice"))
		}, []string{"Released alice"}},
		"an end that the informer has missed": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.end(released)
			a.OnDelete(cache.DeletedFinalStateUnknown{Key: "default/k", Obj: stored("alice")})
		}, []string{"Released alice"}},
		"the end of another object": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.end(released)
			a.OnDelete(stored("alice", other))
		}, nil},
		"an end that two have asked for": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.end(released)
			a.end(forced)
			a.OnDelete(stored("alice"))
			a.OnDelete(stored("alice"))
		}, []string{"ForceReleased bob"}},
		"an end by others, long after a delete that failed": {func(a *awaited, now *clocktesting.FakePassiveClock) {
			a.end(released)
			now.SetTime(now.Now().Add(awaitedFor + time.Second))
			a.OnDelete(stored("alice"))
		}, nil},
		"an end that finalizers put off": {func(a *awaited, now *clocktesting.FakePassiveClock) {
			a.end(released)
			now.SetTime(now.Now().Add(awaitedFor / 2))
			a.OnUpdate(nil, stored("alice", func(l *v1alpha1.Lock) { l.DeletionTimestamp = &metav1.Time{Time: began} }))
			now.SetTime(now.Now().Add(awaitedFor))
			a.OnDelete(stored("alice"))
		}, []string{"Released alice"}},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			records, now := &audittest.Recorder{}, clocktesting.NewFakePassiveClock(began)
			test.do(newAwaited(records, now), now)
			var got []string
			for _, record := range records.All() {
				got = append(got, fmt.Sprint(record.Event, " ", record.Actor))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAwaitedIsBounded(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	records := &audittest.Recorder{}
	awaited := newAwaited(records, now)
	flood := func() {
		for number := range 3 * maxAwaited {
			awaited.end(audit.Record{Namespace: "default", Lock: fmt.Sprint("lock-", number)})
		}
	}
	flood()
	if got := len(awaited.facts); got != maxAwaited {
		t.Errorf("%d facts are awaited, want at most %d", got, maxAwaited)
	}
	if got := records.Losses(); got != 2*maxAwaited {
		t.Errorf("%d records are said to be lost, want %d", got, 2*maxAwaited)
	}
	now.SetTime(now.Now().Add(awaitedFor + time.Second))
	awaited.end(audit.Record{Lock: "next"})
	if got := len(awaited.facts); got != 1 {
		t.Errorf("%d facts are awaited after all but one are overdue, want 1", got)
	}
}

func TestEndOfALock(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	lock := func(ttl time.Duration, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
		acquired := now.Now().Add(-time.Minute)
		lock := &v1alpha1.Lock{Spec: v1alpha1.LockSpec{
			Holder: "alice", HolderUID: "1", AcquireTime: new(v1alpha1.NewTimestamp(acquired)), ExpireTime: new(v1alpha1.NewTimestamp(acquired.Add(ttl))),
		}}
		for _, change := range changes {
			change(lock)
		}
		return lock
	}
	owned := func(l *v1alpha1.Lock) { l.OwnerReferences = []metav1.OwnerReference{{Name: "pod"}} }
	why := func(l *v1alpha1.Lock) {
		l.Annotations = map[string]string{v1alpha1.ForceReleaseReasonAnnotation: "stuck"}
	}
	cases := map[string]struct {
		lock *v1alpha1.Lock
		user string
		want string
	}{
		"the holder":                                       {lock(time.Hour), "alice", "Released ByOwner  60"},
		"the holder, by its UID":                           {lock(time.Hour), "alice/1", "Released ByOwner  60"},
		"a later account":                                  {lock(time.Hour, why), "alice/2", "ForceReleased ByForce stuck 60"},
		"the holder, too late":                             {lock(30 * time.Second), "alice", "Expired Reaped  30"},
		"another user":                                     {lock(time.Hour, why), "bob", "ForceReleased ByForce stuck 60"},
		"the namespace controller":                         {lock(time.Hour), namespaceCleaner, "Released NamespaceDeleted  60"},
		"the garbage collector":                            {lock(time.Hour, owned), garbageCollector, "Released OwnersGone  60"},
		"the controller manager, of a lock with owners":    {lock(time.Hour, owned), controllerManager, "Released OwnersGone  60"},
		"the controller manager, of a lock without owners": {lock(time.Hour), controllerManager, "Released NamespaceDeleted  60"},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			records := &Audit{clock: now}
			name, uid, _ := strings.Cut(test.user, "/")
			got := records.ended(test.lock, rules.User{Name: name, UID: uid})
			if text := fmt.Sprint(got.Event, " ", got.Reason, " ", got.Message, " ", *got.HeldSeconds); text != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
		})
	}
}
