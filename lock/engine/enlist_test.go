package engine_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/engine/places"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/rules"
)

// acquisitionID is that of a caller whom one engine has granted the lock and could not tell.
const acquisitionID = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"

// identified is the second try of alice under the ID.
func identified(owner string, ttl time.Duration) lock.Request {
	request := by(owner)
	request.ID, request.TTL, request.Wait = rules.NthTry(acquisitionID, 2), ttl, lock.WaitForever
	return request
}

// enlist lets a caller of another replica wait, and returns where its outcome comes.
func enlist(t *testing.T, at *engine.Engine, request lock.Request) (engine.Place, chan error) {
	t.Helper()
	synctest.Wait() // It runs.
	answers := make(chan error, 1)
	place, err := at.Enlist(t.Context(), "default", request, func(_ *v1alpha1.Lock, err error) bool {
		answers <- err
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return place, answers
}

// grantUntold grants the lock to a try under the ID at another engine.
func grantUntold(t *testing.T, etcd *etcd, owner string, ttl time.Duration, try uint32) (*engine.Engine, *v1alpha1.Lock) {
	t.Helper()
	former := start(t, etcd)
	request := identified(owner, ttl)
	request.ID, request.Wait = rules.NthTry(acquisitionID, try), 0
	granted, err := former.Acquire(t.Context(), "default", request)
	if err != nil {
		t.Fatal(err)
	}
	return former, granted
}

// A grant that another engine could not tell is granted anew, unless its caller has found it: it has the lock then,
// under the token of that grant.
func TestAGrantThatItsCallerHasFoundIsNotClaimed(t *testing.T) {
	for title, test := range map[string]struct {
		try                uint32
		isRenewed, isFound bool
	}{
		"of an earlier try":               {try: 1},
		"of an earlier try, and renewed":  {try: 1, isRenewed: true, isFound: true},
		"of the same try":                 {try: 2},
		"of the same try, and renewed":    {try: 2, isRenewed: true, isFound: true},
		"of a later try":                  {try: 3, isFound: true},
		"of a try with two digits more":   {try: 0x100, isFound: true},
		"of a later try, and renewed":     {try: 3, isRenewed: true, isFound: true},
		"of the last try that is counted": {try: math.MaxUint32, isFound: true},
	} {
		bubbleOf(t, title, func(t *testing.T) {
			etcd := newEtcd()
			former, granted := grantUntold(t, etcd, "a", time.Hour, test.try)
			token, err := granted.FencingToken()
			if err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			if test.isRenewed {
				renew(t, former)
			}
			next := start(t, etcd)
			_, answers := enlist(t, next, identified("a", time.Hour))
			_, behind := enlist(t, next, waiting("b", time.Hour))
			got := <-answers
			if test.isFound != errors.Is(got, lock.ErrFoundElsewhere) || !test.isFound && got != nil {
				t.Errorf("the caller is told %v", got)
			}
			err = next.Release(t.Context(), "default", key, lock.Proof{Owner: "a", FencingToken: token})
			if test.isFound != (err == nil) {
				t.Errorf("release by the first grant: %v", err)
			}
			if test.isFound {
				if err := <-behind; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A claim that meets another change of the lock, or is refused, holds up neither the caller nor those behind it.
func TestAClaimThatFailsHoldsUpNoWaiter(t *testing.T) {
	for title, test := range map[string]struct {
		// meanwhile is what happens while the watch is down.
		meanwhile func(*etcd)
		refusal   error
		isTold    bool
	}{
		"the lock has ended":       {meanwhile: func(etcd *etcd) { etcd.remove() }},
		"the lock has passed on":   {meanwhile: func(etcd *etcd) { etcd.annotate("example.com/a", "b") }},
		"the API server refuses":   {refusal: apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Lock").GroupKind(), "a", field.ErrorList{field.Invalid(field.NewPath("spec"), "a", "no")}), isTold: true},
		"the API server is silent": {refusal: errLostAnswer},
	} {
		bubbles(t, title, func(t *testing.T, etcd *etcd, next *engine.Engine) {
			_, _ = grantUntold(t, etcd, "secret-a", 20*time.Second, 2)
			pass(time.Second)
			etcd.mute(true)
			if test.meanwhile != nil {
				test.meanwhile(etcd)
			}
			if test.refusal != nil {
				etcd.inject(faults{before: once("update", test.refusal)})
			}
			began := time.Now()
			_, answers := enlist(t, next, identified("secret-a", time.Hour))
			got := <-answers
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("the caller is told after %v", took)
			}
			if test.isTold != (got != nil) {
				t.Errorf("the caller is told %v", got)
			}
			if got != nil && (!errors.Is(got, lock.ErrInvalid) || strings.Contains(got.Error(), "secret-a")) {
				t.Errorf("the caller is told %v", got)
			}
		})
	}
}

// Owner tokens may be names. A caller of another identity has no place of the first one.
func TestAPlaceIsOfOneIdentity(t *testing.T) {
	bubble(t, func(t *testing.T, _ *etcd, at *engine.Engine) {
		acquire(t, at, by("first"))
		of := func(holder string, wait time.Duration) lock.Request {
			request := waiting("shared", wait)
			request.Holder = holder
			return request
		}
		gone, _ := enlist(t, at, of("alice", time.Hour))
		pass(time.Second)
		_, _ = enlist(t, at, of("carol", time.Hour))
		pass(time.Second)
		_, _ = enlist(t, at, of("bob", time.Hour))
		pass(time.Second)
		if err := gone.Leave(); err == nil {
			t.Error("no reason is told")
		}
		_, _ = enlist(t, at, of("alice", time.Hour))
		wantInLine(t, at, "alice", "carol", "bob")
	})
}

func wantInLine(t *testing.T, at *engine.Engine, want ...string) {
	t.Helper()
	waiters, _, err := at.Waiters(t.Context(), "default", key, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, waiter := range waiters {
		got = append(got, waiter.Holder)
	}
	if !slices.Equal(got, want) {
		t.Errorf("in line stand %v, want %v", got, want)
	}
}

// A place that comes from the former home of the line counts, also if its caller has come before it.
func TestAKeptPlaceComesFromAnotherReplica(t *testing.T) {
	for title, isLate := range map[string]bool{"before its caller": false, "after its caller": true} {
		bubbleOf(t, title, func(t *testing.T) {
			at := start(t, newEtcd())
			acquire(t, at, by("first"))
			left := places.Place{
				Caller: places.Caller{Lock: types.NamespacedName{Namespace: "default", Name: name}, Owner: "back", Holder: "alice"}, Since: time.Now().Add(-time.Minute),
			}
			other := waiting("other", time.Hour)
			other.Holder = "bob"
			_, _ = enlist(t, at, other)
			if !isLate {
				at.Keep(left)
			}
			back := waiting("back", time.Hour)
			back.Holder = "alice"
			place, _ := enlist(t, at, back)
			if isLate {
				at.Keep(left)
			}
			if !place.Since().Equal(left.Since) {
				t.Errorf("the caller stands since %v", place.Since())
			}
			wantInLine(t, at, "alice", "bob")
		})
	}
}

// Bounds do not apply to a caller that another replica has let wait.
func TestAnAcceptedCallerIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		at := startWith(t, engine.Options{Objects: etcd.locks, Informer: etcd, Limits: rules.DefaultLimits(), Waiters: engine.WaiterLimits{PerLock: 1}})
		acquire(t, at, by("first"))
		_, _ = enlist(t, at, waiting("a", time.Hour))
		synctest.Wait()
		second := waiting("b", time.Hour)
		_, err := at.Enlist(t.Context(), "default", second, func(*v1alpha1.Lock, error) bool { return true })
		if full, ok := errors.AsType[*lock.LineFullError](err); !ok || full.Bound != lock.LinePerLock {
			t.Errorf("a new caller: %v", err)
		}
		second.PlaceSince = time.Now().Add(-time.Minute)
		_, _ = enlist(t, at, second)
		waiters, _, err := at.Waiters(t.Context(), "default", key, 10)
		if err != nil || len(waiters) != 2 || !waiters[0].Since.Equal(second.PlaceSince) || waiters[0].Until.Before(time.Now()) {
			t.Errorf("in line stand %v: %v", waiters, err)
		}
	})
}

// A grant through the line is timed like one that its engine's own caller gets.
func TestGrantsThroughTheLineAreTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		at, registry := startObserved(t, etcd)
		acquire(t, at, by("a"))
		_, answers := enlist(t, at, waiting("b", time.Hour))
		pass(5 * time.Second)
		release(t, at, "a")
		if err := <-answers; err != nil {
			t.Error(err)
		}
		pass(time.Second)
		wantMetric(t, registry, &metric.AcquireDuration, map[string]string{"via": "facade", "waited": "true"}, 1)
	})
}

// An engine whose requests fail tells so, so that another one serves those that wait; after a while it may be
// tried again.
func TestAnEngineWhoseRequestsFailIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, at *engine.Engine) {
		acquire(t, at, by("a"))
		if at.HasLostTouch() {
			t.Error("behind without a failure")
		}
		etcd.inject(faults{before: always(errRefused)})
		ctx, leave := context.WithCancel(t.Context())
		answers := make(chan answer, 1)
		queueUp(ctx, t, at, waiting("b", time.Hour), answers)
		pass(35 * time.Second) // The lock has expired.
		if !at.HasLostTouch() {
			t.Error("not behind although requests fail")
		}
		leave()
		<-answers
		etcd.inject(faults{})
		pass(6 * time.Second)
		if at.HasLostTouch() {
			t.Error("behind for ever")
		}
	})
}

// A wait that ends while the lock is claimed for it, and a claim that fails, leave no caller waiting beyond its bound.
func TestAFailedClaimAtTheEndOfTheWaitEndsIt(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, next *engine.Engine) {
		_, _ = grantUntold(t, etcd, "a", time.Hour, 1)
		pass(time.Second)
		_, ahead := enlist(t, next, waiting("b", time.Hour))
		reached, goOn := make(chan struct{}), make(chan struct{})
		etcd.inject(faults{before: func(verb string) error {
			if verb != "update" {
				return nil
			}
			close(reached)
			<-goOn
			etcd.inject(faults{})
			return apierrors.NewConflict(v1alpha1.Resource("locks"), "a", errors.New("changed"))
		}})
		late, answers := enlist(t, next, identified("a", time.Hour))
		<-reached
		if err := late.GiveUp(); err != nil {
			t.Fatalf("the wait has ended while a write was under way: %v", err)
		}
		etcd.annotate("forrst.dev/acquisition", "of another")
		close(goOn)
		select {
		case err := <-answers:
			if !errors.Is(err, lock.ErrTimeout) {
				t.Error(err)
			}
		case <-time.After(time.Second):
			t.Error("the caller is told nothing")
		}
		select {
		case err := <-ahead:
			t.Errorf("the caller at the head is told %v", err)
		default:
		}
	})
}

// A wait ends at its bound however long claims go unanswered: that of the caller who was granted the lock, after the
// claim that is under way, and that of another one at the head.
func TestAWaitEndsAtItsBoundWhileClaimsFail(t *testing.T) {
	for name, others := range map[string]int{"of the caller with the grant": 0, "of another caller at the head": 1} {
		bubbles(t, name, func(t *testing.T, etcd *etcd, next *engine.Engine) {
			_, _ = grantUntold(t, etcd, "a", time.Hour, 1)
			pass(time.Second)
			var head engine.Place
			var answers <-chan error
			for range others {
				head, answers = enlist(t, next, waiting("b", time.Hour))
			}
			reached := make(chan struct{}, 1)
			etcd.inject(faults{before: func(verb string) error {
				if verb != "update" {
					return nil
				}
				select {
				case reached <- struct{}{}:
				default:
				}
				pass(100 * time.Millisecond)
				return apierrors.NewTimeoutError("etcd does not answer", 0)
			}})
			claimed, told := enlist(t, next, identified("a", time.Hour))
			if others == 0 {
				head, answers = claimed, told
			}
			<-reached
			began := time.Now()
			if err := head.GiveUp(); err == nil {
				select {
				case err := <-answers:
					if !errors.Is(err, lock.ErrTimeout) && !errors.Is(err, lock.ErrUnavailable) {
						t.Error(err)
					}
				case <-time.After(time.Minute):
					t.Error("the caller is told nothing")
				}
			}
			if took := time.Since(began); took > lock.OperationTimeout+time.Second {
				t.Errorf("its wait ends after %v", took)
			}
		})
	}
}
