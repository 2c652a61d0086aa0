package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// slowly delays the answer to the first write of a verb beyond the ttl, as in a process that is stopped or
// an API server that is overloaded.
func slowly(verb string) faults {
	var first sync.Once
	return faults{after: func(got string) error {
		if got == verb {
			first.Do(func() { pass(40 * time.Second) })
		}
		return nil
	}}
}

// wantNext receives the next answer and fails unless it is a grant to the owner, with a token
// larger than last. It returns the token.
func wantNext(t *testing.T, answers <-chan answer, owner string, last int64) int64 {
	t.Helper()
	got := <-answers
	if got.err != nil || got.owner != owner || got.token <= last {
		t.Fatalf("%s got token %d, %v; want %s to get one larger than %d", got.owner, got.token, got.err, owner, last)
	}
	return got.token
}

func TestAHandOffThatIsAnsweredAfterItsExpiryIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		acquire(t, engine, by("a"))
		answers := make(chan answer, 2)
		queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
		queueUp(t.Context(), t, engine, waiting("c", time.Hour), answers)
		etcd.made()
		etcd.inject(slowly("update"))
		release(t, engine, "a")
		began := time.Now()
		token := wantNext(t, answers, "b", 2) // 2 is the token of the hand-off that b did not learn of.
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("granted anew after %v", took)
		}
		if diff := cmp.Diff([]string{"update", "update"}, etcd.made()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		release(t, engine, "b")
		wantNext(t, answers, "c", token)
		release(t, engine, "c")
	})
}

func TestAGrantOfAWaiterThatLapsesIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		etcd.inject(slowly("create"))
		answers := make(chan answer, 2)
		queueUp(t.Context(), t, engine, waiting("a", time.Hour), answers)
		queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
		token := wantNext(t, answers, "a", 1)
		if diff := cmp.Diff([]string{"create", "update"}, etcd.made()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		release(t, engine, "a")
		wantNext(t, answers, "b", token)
		release(t, engine, "b")
	})
}

// A caller that does not wait would try for ever with a ttl that no answer can keep, and is told so. With a longer one, it is
// the API server that is slow.
func TestAGrantThatLapsesBeforeItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		etcd.inject(faults{after: func(verb string) error {
			if verb == "create" {
				pass(1500 * time.Millisecond)
			}
			return nil
		}})
		for ttl, want := range map[time.Duration]error{time.Millisecond: lock.ErrInvalid, 99 * time.Millisecond: lock.ErrInvalid, 100 * time.Millisecond: lock.ErrUnavailable} {
			request := waiting("a", 0)
			request.TTL = ttl
			_, err := engine.Acquire(t.Context(), "default", request)
			for _, each := range []error{lock.ErrInvalid, lock.ErrUnavailable} {
				if isIt := errors.Is(want, each); errors.Is(err, each) != isIt {
					t.Errorf("ttl %s: %v", ttl, err)
				}
			}
			if invalid, ok := errors.AsType[*lock.InvalidError](err); ok && (invalid.Problems[0].Field != "spec.ttl" || !strings.Contains(err.Error(), "1.5s after the request")) {
				t.Errorf("ttl %s: %v", ttl, err)
			}
		}
	})
}

// A ttl that is shorter than any write takes.
func TestAWaitWhoseGrantsAlwaysLapse(t *testing.T) {
	for title, isAdmitted := range map[string]bool{"stamped by the engine": false, "stamped by admission": true} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				behind := newAdmitting()
				engine := start(t, behind.etcd)
				if isAdmitted {
					engine = startAdmitted(t, behind)
				}
				behind.inject(faults{after: func(string) error {
					pass(5 * time.Millisecond)
					return nil
				}})
				hopeless := waiting("a", 30*time.Second)
				hopeless.TTL = time.Millisecond
				began := time.Now()
				_, err := engine.Acquire(t.Context(), "default", hopeless)
				took := time.Since(began)
				if !errors.Is(err, lock.ErrTimeout) || errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("got %v, want ErrTimeout", err)
				}
				if took < 29*time.Second || took > 30*time.Second+50*time.Millisecond {
					t.Errorf("waited %v", took)
				}
				made := behind.made()
				if len(made) < 20 || len(made) > 120 {
					t.Errorf("%d requests in 30 s: %v", len(made), made)
				}
				pass(10 * time.Millisecond)
				if owner := behind.owner(name); owner != "" {
					t.Errorf("the lapsed grant of %q is left", owner)
				}
			})
		})
	}
}

func TestAWaiterWhoseGrantsAlwaysLapseDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		acquire(t, engine, by("holder"))
		etcd.inject(faults{after: func(string) error {
			pass(5 * time.Millisecond)
			return nil
		}})
		hopeless := waiting("hopeless", 59*time.Second)
		hopeless.TTL = time.Millisecond
		ended, answers := make(chan answer, 1), make(chan answer, 2)
		queueUp(t.Context(), t, engine, hopeless, ended)
		queueUp(t.Context(), t, engine, waiting("b", 59*time.Second), answers)
		queueUp(t.Context(), t, engine, waiting("c", 59*time.Second), answers)
		began := time.Now()
		release(t, engine, "holder")
		token := wantNext(t, answers, "b", 1)
		release(t, engine, "b")
		wantNext(t, answers, "c", token)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("both were served after %v", took)
		}
		release(t, engine, "c")
		if got := <-ended; !errors.Is(got.err, lock.ErrTimeout) {
			t.Errorf("the first got %v", got.err)
		}
	})
}

// Between the lapse and the next try, another client changes the lock.
func TestALapsedGrantThatIsGoneByThen(t *testing.T) {
	cases := map[string]func(t *testing.T, etcd *etcd, other *engine.Engine){
		"it was reaped": func(_ *testing.T, etcd *etcd, _ *engine.Engine) { etcd.remove() },
		"it was taken over": func(t *testing.T, _ *etcd, other *engine.Engine) {
			t.Helper()
			acquire(t, other, by("other"))
			time.AfterFunc(time.Second, func() { release(t, other, "other") })
		},
	}
	for title, change := range cases {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				etcd := newEtcd()
				running, other := start(t, etcd), start(t, etcd)
				acquire(t, running, by("a"))
				answers := make(chan answer, 2)
				queueUp(t.Context(), t, running, waiting("b", time.Hour), answers)
				queueUp(t.Context(), t, running, waiting("c", time.Hour), answers)
				etcd.inject(slowly("update"))
				release(t, running, "a")
				change(t, etcd, other)
				token := wantNext(t, answers, "b", 2)
				release(t, running, "b")
				wantNext(t, answers, "c", token)
				release(t, running, "c")
			})
		})
	}
}

// The caller whose grant lapsed has left. The next waiter need not wait for the skew allowance.
func TestALapsedGrantOfACallerThatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		acquire(t, engine, by("a"))
		answers := make(chan answer, 2)
		ctx, cancel := context.WithCancel(t.Context())
		queueUp(ctx, t, engine, waiting("gone", time.Hour), answers)
		queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
		slow := slowly("update")
		etcd.inject(faults{after: func(verb string) error {
			cancel()
			return slow.after(verb)
		}})
		release(t, engine, "a")
		began := time.Now()
		if got := <-answers; got.owner != "gone" || !errors.Is(got.err, context.Canceled) {
			t.Fatalf("%s got %v", got.owner, got.err)
		}
		wantNext(t, answers, "b", 2)
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("acquired %v after the lapse", took)
		}
		release(t, engine, "b")
	})
}

// crowded is an API server that works on a few requests at a time.
type crowded struct {
	engine.Objects
	workers chan struct{}
	time    time.Duration
}

func (c crowded) work() func() {
	c.workers <- struct{}{}
	pass(c.time)
	return func() { <-c.workers }
}

func (c crowded) Create(ctx context.Context, object *v1alpha1.Lock, options metav1.CreateOptions) (*v1alpha1.Lock, error) {
	done := c.work()
	defer done()
	return c.Objects.Create(context.WithoutCancel(ctx), object, options)
}

func (c crowded) Update(ctx context.Context, object *v1alpha1.Lock, options metav1.UpdateOptions) (*v1alpha1.Lock, error) {
	done := c.work()
	defer done()
	return c.Objects.Update(context.WithoutCancel(ctx), object, options)
}

// A hundred locks are released at once, and each of their waiters releases as soon as it holds.
// The API server needs a second, the whole ttl, for one round.
func TestAHerdOfWaitersWithAShortTTL(t *testing.T) {
	const keys, total = 100, 9500
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		etcd := newEtcd()
		behind := crowded{Objects: etcd, workers: make(chan struct{}, 4), time: 40 * time.Millisecond}
		engine := startWith(t, engine.Options{
			Objects:  func(string) engine.Objects { return behind },
			Informer: etcd, Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second,
		})
		request := func(key, owner string, wait time.Duration) lock.Request {
			request := waiting(owner, wait)
			request.Key, request.TTL = key, time.Second
			return request
		}
		var mu sync.Mutex
		served, tokens := map[string][]string{}, map[string]int64{}
		// serve records a grant and releases it.
		serve := func(key, owner string, granted *v1alpha1.Lock) {
			mu.Lock()
			served[key] = append(served[key], owner)
			token, err := granted.FencingToken()
			if err != nil || token <= tokens[key] {
				t.Errorf("%s of %s: token %d after %d, %v", owner, key, token, tokens[key], err)
			}
			tokens[key] = token
			mu.Unlock()
			err = engine.Release(t.Context(), "default", granted.Spec.FullKey(), lock.Proof{Owner: owner})
			if err != nil && !errors.Is(err, lock.ErrNotHeld) && !errors.Is(err, lock.ErrOwnerMismatch) {
				t.Errorf("release of %s: %v", key, err)
			}
		}
		var callers sync.WaitGroup
		holders, want := map[string]lock.Request{}, map[string][]string{}
		for i := range keys {
			key := fmt.Sprint("key-", i)
			holders[key] = request(key, "0", 0)
			holder := holders[key]
			holder.TTL = time.Hour
			acquire(t, engine, holder)
			want[key] = append(want[key], "0")
		}
		for i := range total {
			key, owner := fmt.Sprint("key-", i%keys), fmt.Sprint(i/keys+1)
			want[key] = append(want[key], owner)
			callers.Go(func() {
				granted, err := engine.Acquire(t.Context(), "default", request(key, owner, lock.WaitForever))
				if err != nil {
					t.Errorf("waiter %s of %s: %v", owner, key, err)
					return
				}
				serve(key, owner, granted)
			})
			synctest.Wait()
		}
		released := time.Now()
		made := len(etcd.made())
		for key, holder := range holders {
			callers.Go(func() {
				mu.Lock()
				served[key] = append(served[key], "0")
				mu.Unlock()
				if err := engine.Release(t.Context(), "default", holder.FullKey(), lock.Proof{Owner: "0"}); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		for key, order := range want {
			if !slices.Equal(order, served[key]) {
				t.Errorf("%s was served in the order %v", key, served[key])
			}
		}
		writes := len(etcd.made())
		if lapsed := writes - total; lapsed < 1 {
			t.Errorf("%d writes for %d grants: the test shows nothing", writes, total)
		}
		t.Logf("%d waiters on %d keys served in %v after a set-up of %v (%d requests), with %d requests",
			total, keys, time.Since(released), released.Sub(began), made, writes)
	})
}

// A holder is not told that it has a lock which has ended, such as by a ttl of a millisecond.
func TestARenewalThatExpiresBeforeItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		request := by("a")
		request.TTL = time.Hour
		acquire(t, engine, request)
		etcd.inject(slowly("update"))
		if renewed, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 10*time.Second); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("got %v, %v, want ErrExpired", renewed, err)
		}
	})
}
