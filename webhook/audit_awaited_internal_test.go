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
		"a forced release that does not show": {func(a *awaited, now *clocktesting.FakePassiveClock) {
			a.end(forced)
			now.SetTime(now.Now().Add(awaitedFor + time.Second))
			a.OnUpdate(nil, stored("alice"))
			a.OnUpdate(nil, stored("alice"))
		}, []string{"ForceReleaseUnseen bob"}},
		"a forced release that shows late, since the watch was away": {func(a *awaited, now *clocktesting.FakePassiveClock) {
			a.end(forced)
			now.SetTime(now.Now().Add(awaitedFor + time.Second))
			a.grant(stored("carol"), audit.Granted, nil)
			a.OnDelete(stored("alice"))
		}, []string{"ForceReleased bob"}},
		"a forced release that another delete has overtaken": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.end(forced)
			a.end(released)
			a.OnDelete(stored("alice"))
		}, []string{"ForceReleaseUnseen bob", "Released alice"}},
		"a forced release about which the API server asks again": {func(a *awaited, _ *clocktesting.FakePassiveClock) {
			a.end(forced)
			a.end(forced)
			a.OnDelete(stored("alice"))
		}, []string{"ForceReleased bob"}},
		"an end that finalizers put off, and that is asked for again": {func(a *awaited, now *clocktesting.FakePassiveClock) {
			a.end(released)
			a.OnUpdate(nil, stored("alice", func(l *v1alpha1.Lock) { l.DeletionTimestamp = &metav1.Time{Time: now.Now()} }))
			a.end(released)
			now.SetTime(now.Now().Add(awaitedFor + time.Second))
			a.OnDelete(stored("alice"))
		}, []string{"Released alice"}},
		"an end that finalizers put off": {func(a *awaited, now *clocktesting.FakePassiveClock) {
			a.end(released)
			now.SetTime(now.Now().Add(awaitedFor / 2))
			a.OnUpdate(nil, stored("alice", func(l *v1alpha1.Lock) { l.DeletionTimestamp = &metav1.Time{Time: began} }))
			now.SetTime(now.Now().Add(10 * awaitedFor))
			a.OnUpdate(nil, stored("bob", other))
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

// A user whose changes are admitted and never happen, since validation refuses them, takes up its own
// room: neither under many names nor in many requests does it push out the changes of other users.
func TestAwaitedChangesOfOneActorDoNotPushOutThoseOfOthers(t *testing.T) {
	const count = 100
	cases := map[string]func(number int) (namespace, user string){
		"in the same namespace":   func(int) (string, string) { return "payments", "mallory" },
		"in another namespace":    func(int) (string, string) { return "hostile", "mallory" },
		"by many names elsewhere": func(number int) (string, string) { return "hostile", fmt.Sprint("mallory-", number) },
	}
	for title, flood := range cases {
		t.Run(title, func(t *testing.T) {
			now := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
			records := &audittest.Recorder{}
			awaited := newAwaited(records, now)
			awaited.most = 1000
			lock := func(namespace, name, holder string) *v1alpha1.Lock {
				return &v1alpha1.Lock{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
					Spec:       v1alpha1.LockSpec{Key: name, Holder: holder, AcquireTime: new(v1alpha1.NewTimestamp(now.Now()))},
				}
			}
			ended := func(number int, holder string) *v1alpha1.Lock {
				return lock("payments", fmt.Sprint("ended-", number), holder)
			}
			for number := range count {
				awaited.grant(lock("payments", fmt.Sprint("granted-", number), "alice"), audit.Granted, nil)
				awaited.end(audit.Ended(audit.ForceReleased, audit.ByForce, audit.Admission, "bob", ended(number, "carol"), now.Now()))
			}
			flooded := 2 * awaited.most
			for number := range flooded {
				namespace, user := flood(number)
				awaited.grant(lock(namespace, fmt.Sprint("malformed-", number), user), audit.Granted, nil)
			}
			for number := range count {
				awaited.OnAdd(lock("payments", fmt.Sprint("granted-", number), "alice"), false)
				awaited.OnDelete(ended(number, "carol"))
			}
			got := map[audit.Event]int{}
			for _, record := range records.All() {
				got[record.Event]++
			}
			if diff := cmp.Diff(map[audit.Event]int{audit.Granted: count, audit.ForceReleased: count}, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if got, want := records.Losses(), flooded+2*count-awaited.most; got != want {
				t.Errorf("%d records are said to be lost, want %d", got, want)
			}
		})
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

// A review may be forged, and of any size. What is kept of it is not.
func TestAwaitedChangesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	now := v1alpha1.NewTimestamp(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	lock := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: long, Name: long, UID: types.UID(long)},
		Spec:       v1alpha1.LockSpec{Key: long, Owner: long, Holder: long, AcquireTime: &now, RenewTime: &now, ExpireTime: &now},
	}
	a := newAwaited(&audittest.Recorder{}, clocktesting.NewFakePassiveClock(now.Time))
	a.grant(lock, audit.Granted, nil)
	a.renewal(lock, long)
	a.end(audit.Ended(audit.Released, audit.ByOwner, audit.Admission, long, lock, now.Time))
	if len(a.facts) != 3 {
		t.Fatalf("%d changes, want 3", len(a.facts))
	}
	for fact, change := range a.facts {
		if text := fmt.Sprintf("%+v %s %+v", fact, change.actor, change.ended); len(text) > 10_000 {
			t.Errorf("%d bytes are kept of a change of kind %d", len(text), fact.kind)
		}
	}
}
