package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// direct is the other way to the locks of a façade.
type direct struct {
	*locktest.Backend

	mu       sync.Mutex
	calls    []string
	requests []lock.Request
}

func (d *direct) note(call string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
}

func (d *direct) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	d.note("acquire")
	d.mu.Lock()
	d.requests = append(d.requests, request)
	d.mu.Unlock()
	return d.Backend.Acquire(ctx, namespace, request)
}

func (d *direct) Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	d.note("renew")
	return d.Backend.Renew(ctx, namespace, key, proof, ttl)
}

func (d *direct) Release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	d.note("release")
	return d.Backend.Release(ctx, namespace, key, proof)
}

func (d *direct) want(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.calls, want) {
		t.Errorf("direct was asked for %q, want %q", d.calls, want)
	}
}

// newInLine returns a backend on the locks of the façade, and the two that it is made of.
func newInLine(t *testing.T, options ...client.Option) (lock.Backend, *fixture, *direct) {
	t.Helper()
	f := newFixture(t, options...)
	d := &direct{Backend: f.locks.Backend}
	return client.InLine(d, f.Client), f, d
}

func mustAcquire(t *testing.T, backend lock.Backend, request lock.Request) *v1alpha1.Lock {
	t.Helper()
	granted, err := backend.Acquire(t.Context(), namespace, request)
	if err != nil {
		t.Fatal(err)
	}
	return granted
}

func proofFor(granted *v1alpha1.Lock) lock.Proof { return lock.Proof{Owner: granted.Spec.Owner} }

// refusedDial is what a façade says that does not listen.
func refusedDial(func() (*http.Response, error)) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

func TestInLineAWaitIsReleasedAtTheFacadeAndRenewedDirectly(t *testing.T) {
	backend, f, d := newInLine(t)
	granted := mustAcquire(t, backend, waiting(time.Minute))
	if _, err := backend.Renew(t.Context(), namespace, "lock:k", proofFor(granted), 0); err != nil {
		t.Error(err)
	}
	if err := backend.Release(t.Context(), namespace, "lock:k", proofFor(granted)); err != nil {
		t.Error(err)
	}
	f.wantCalls("acquire", "release")
	d.want(t, "renew")
	f.wantHeld()
}

func TestInLineATryIsDirect(t *testing.T) {
	backend, f, d := newInLine(t)
	granted := mustAcquire(t, backend, forKey("k"))
	if _, err := backend.Acquire(t.Context(), namespace, forKey("k")); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("got %v, want ErrHeld", err)
	}
	if err := backend.Release(t.Context(), namespace, "lock:k", proofFor(granted)); err != nil {
		t.Error(err)
	}
	f.wantCalls()
	d.want(t, "acquire", "acquire", "release")
}

// A lock that was taken again by another way is not of the line any more.
func TestInLineATryUnderTheTokenOfAFormerWait(t *testing.T) {
	backend, f, d := newInLine(t)
	request := waiting(time.Minute)
	request.Owner = "job-17"
	mustAcquire(t, backend, request)
	if err := f.locks.Expire(namespace, "lock:k"); err != nil {
		t.Fatal(err)
	}
	again := mustAcquire(t, backend, chosen("k"))
	if err := backend.Release(t.Context(), namespace, "lock:k", proofFor(again)); err != nil {
		t.Error(err)
	}
	f.wantCalls("acquire")
	d.want(t, "acquire", "release")
	f.wantHeld()
}

func TestInLineAReleaseThatTheFacadeDoesNotDo(t *testing.T) {
	forbidden := answered(403, "no")
	for title, fault := range map[string]fault{
		"which does not listen":  refusedDial,
		"whose request is lost":  lostRequest,
		"whose answer is lost":   lostAnswer,
		"which forbids it":       func(func() (*http.Response, error)) (*http.Response, error) { return forbidden(noResponse) },
		"which is not available": func(func() (*http.Response, error)) (*http.Response, error) { return answered(503, "")(noResponse) },
	} {
		t.Run(title, func(t *testing.T) {
			backend, f, d := newInLine(t)
			granted := mustAcquire(t, backend, waiting(time.Minute))
			f.befall(fault)
			if err := backend.Release(t.Context(), namespace, "lock:k", proofFor(granted)); err != nil {
				t.Error(err)
			}
			f.wantCalls("acquire", "release")
			d.want(t, "release")
			f.wantHeld()
		})
	}
}

func noResponse() (*http.Response, error) { return nil, errReset }

// The façade has handed the lock on and could not say so. The next holder may have the same owner token.
func TestInLineAReleaseWhoseAnswerIsLostToTheNextHolder(t *testing.T) {
	for _, next := range []string{"next", "job-17"} {
		t.Run(next, func(t *testing.T) {
			backend, f, _ := newInLine(t)
			request := waiting(time.Minute)
			request.Owner = "job-17"
			granted := mustAcquire(t, backend, request)
			f.befall(func(carry func() (*http.Response, error)) (*http.Response, error) {
				_, err := lostAnswer(carry)
				f.hold("k", next)
				return nil, err
			})
			if err := backend.Release(t.Context(), namespace, "lock:k", proofFor(granted)); err != nil {
				t.Errorf("got %v, want the release to be found done", err)
			}
			f.wantHeld("lock:k")
		})
	}
}

// A release that has failed may be done late, and its owner token may have the lock again when it is repeated.
func TestInLineAReleaseIsRepeatedForItsOwnGrantAlone(t *testing.T) {
	backend, f, _ := newInLine(t)
	request := waiting(time.Minute)
	request.Owner = "job-17"
	granted := mustAcquire(t, backend, request)
	f.befall(lostRequest)
	f.locks.SetHooks(locktest.Hooks{Before: locktest.Failing(locktest.Release, lock.ErrUnavailable)})
	if err := backend.Release(t.Context(), namespace, "lock:k", proofFor(granted)); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	f.locks.SetHooks(locktest.Hooks{})
	if err := f.locks.ForceRelease(t.Context(), namespace, "lock:k", "stuck"); err != nil {
		t.Fatal(err)
	}
	f.hold("k", "job-17")
	if err := backend.Release(t.Context(), namespace, "lock:k", proofFor(granted)); err == nil {
		t.Error("a release of a grant that is over succeeds")
	}
	f.wantHeld("lock:k")
}

// What the façade has refused before it did anything has not ended the lock, and what it did not answer may have, whatever
// direct says.
func TestInLineAReleaseThatIsRefusedHasDoneNothing(t *testing.T) {
	refused := answered(503, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":null,"result":null,"errors":[{"code":"UNAVAILABLE","message":"m","details":{"retry_after":{"value":1,"unit":"second"},"nothing_done":true}}]}`)
	backend, f, _ := newInLine(t)
	granted := mustAcquire(t, backend, waiting(time.Minute))
	f.befall(func(func() (*http.Response, error)) (*http.Response, error) { return refused(noResponse) })
	if err := f.locks.ForceRelease(t.Context(), namespace, "lock:k", "stuck"); err != nil {
		t.Fatal(err)
	}
	if err := backend.Release(t.Context(), namespace, "lock:k", proofFor(granted)); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("got %v, want ErrNotHeld", err)
	}

	granted = mustAcquire(t, backend, waiting(time.Minute))
	f.befall(lostRequest)
	f.locks.fail(fmt.Errorf("%w; %w", lock.ErrUnavailable, lock.ErrNothingDone))
	if err := backend.Release(t.Context(), namespace, "lock:k", proofFor(granted)); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNothingDone) {
		t.Errorf("got %v, want ErrUnavailable without ErrNothingDone", err)
	}
}

func TestInLineAReleaseOfALostLock(t *testing.T) {
	backend, f, d := newInLine(t)
	granted := mustAcquire(t, backend, waiting(time.Minute))
	if err := f.locks.ForceRelease(t.Context(), namespace, "lock:k", "stuck"); err != nil {
		t.Fatal(err)
	}
	if err := backend.Release(t.Context(), namespace, "lock:k", proofFor(granted)); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("got %v, want ErrNotHeld", err)
	}
	d.want(t, "release")
}

func TestInLineAWaitGoesOnDirectly(t *testing.T) {
	for _, request := range []lock.Request{waiting(time.Minute), waiting(lock.WaitForever)} {
		for _, owner := range []string{"", "job-17"} {
			t.Run(fmt.Sprintf("for %s under %q", request.Wait, owner), func(t *testing.T) {
				locks := newMemory()
				backend, f, d := newInLine(t, client.WithClock(locks.clock))
				request.Owner = owner
				f.befall(func(carry func() (*http.Response, error)) (*http.Response, error) {
					locks.clock.Step(20 * time.Second)
					return refusedDial(carry)
				})
				began := locks.clock.Now()
				granted := mustAcquire(t, backend, request)
				want := request
				if want.Wait != lock.WaitForever {
					want.Wait = 40 * time.Second
				}
				want.Since = began
				if got := d.requests[0]; got != want {
					t.Errorf("direct was asked for %+v, want %+v", got, want)
				}
				if err := backend.Release(t.Context(), namespace, "lock:k", proofFor(granted)); err != nil {
					t.Error(err)
				}
				f.wantCalls("acquire")
				d.want(t, "acquire", "release")
				mustAcquire(t, backend, request) // The next wait asks the façade.
				f.wantCalls("acquire", "acquire")
			})
		}
	}
}

// The façade takes longer than the wait to fail.
func TestInLineAFreeLockIsAcquiredAtTheEndOfTheWait(t *testing.T) {
	locks := newMemory()
	backend, f, _ := newInLine(t, client.WithClock(locks.clock))
	f.befall(func(carry func() (*http.Response, error)) (*http.Response, error) {
		locks.clock.Step(time.Hour)
		return refusedDial(carry)
	})
	mustAcquire(t, backend, waiting(time.Minute))
}

func TestInLineARefusalIsFinal(t *testing.T) {
	for title, refused := range map[string]struct{ with, want error }{
		"held for the whole wait": {lock.ErrTimeout, lock.ErrTimeout},
		"invalid":                 {&lock.InvalidError{Problems: field.ErrorList{field.Required(field.NewPath("spec", "key"), "")}}, lock.ErrInvalid},
		"by a quota":              {&lock.RefusedError{Reason: "quota"}, lock.ErrRefused},
		"since the line is full":  {&lock.LineFullError{Bound: lock.LinePerLock, Waiting: 3}, lock.ErrUnavailable},
	} {
		t.Run(title, func(t *testing.T) {
			f := newFixture(t)
			d := &direct{Backend: locktest.New()}
			f.hold("k", "other")
			f.locks.SetHooks(locktest.Hooks{Waiting: func(context.Context, locktest.Call) error { return refused.with }})
			if _, err := client.InLine(d, f.Client).Acquire(t.Context(), namespace, waiting(time.Minute)); !errors.Is(err, refused.want) {
				t.Errorf("got %v, want %v", err, refused.want)
			}
			d.want(t)
		})
	}
}

func TestInLineAWaitThatItsContextEnds(t *testing.T) {
	backend, f, d := newInLine(t)
	f.hold("k", "other")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-f.locks.waiting
		cancel()
	}()
	_, err := backend.Acquire(ctx, namespace, waiting(time.Hour))
	if _, ok := errors.AsType[*lock.InterruptedError](err); !ok || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an InterruptedError", err)
	}
	d.want(t)
}

// The façade has granted the lock, could not say so, and is gone.
func TestInLineAGrantThatIsLostIsWaitedFor(t *testing.T) {
	for _, owner := range []string{"", "job-17"} {
		t.Run(owner, func(t *testing.T) {
			backend, f, d := newInLine(t, client.WithTimeout(40*time.Millisecond))
			f.isDetached.Store(true)
			f.befall(append([]fault{lostAnswer}, slices.Repeat([]fault{lostRequest}, 10_000)...)...)
			request := waiting(time.Hour)
			request.Owner = owner
			answers := make(chan *v1alpha1.Lock, 1)
			go func() {
				granted, err := backend.Acquire(t.Context(), namespace, request)
				if err != nil {
					t.Error(err)
				}
				answers <- granted
			}()
			for f.locks.Waiting(namespace, "lock:k") == 0 {
				runtime.Gosched()
			}
			lost := f.locks.All()[0]
			select {
			case granted := <-answers:
				t.Errorf("granted %v beside %v", granted, lost)
			default:
			}
			if err := f.locks.Expire(namespace, "lock:k"); err != nil {
				t.Error(err)
			}
			granted := <-answers
			before, errBefore := lost.FencingToken()
			after, errAfter := granted.FencingToken()
			if errBefore != nil || errAfter != nil || after <= before {
				t.Errorf("granted %v after %v", granted, lost)
			}
			d.want(t, "acquire")
			f.befall()
			f.Close()
			f.wantHeld("lock:k")
		})
	}
}

// Nothing answers where the façade should be.
func TestInLineAConnectionThatDoesNotComeAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := transportFunc(func(request *http.Request) (*http.Response, error) {
			if trace := httptrace.ContextClientTrace(request.Context()); trace != nil {
				trace.GetConn("facade.test:80")
			}
			<-request.Context().Done()
			return nil, request.Context().Err()
		})
		asking, err := client.New("http://facade.test", client.WithHTTPClient(&http.Client{Transport: transport}))
		if err != nil {
			t.Fatal(err)
		}
		d := &direct{Backend: locktest.New()}
		began := time.Now()
		mustAcquire(t, client.InLine(d, asking), waiting(time.Hour))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("took %s", took)
		}
		d.want(t, "acquire")
		asking.Close()
	})
}

func TestInLineAConnectionThatComesAboutMayBeSilentForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.hold("k", "other")
		f.locks.letWaitsEnd()
		handler := newHandler(t, f.locks, func(*testfacade.Settings) {})
		transport := transportFunc(func(request *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(request.Context())
			trace.GetConn("facade.test:80")
			trace.GotConn(httptrace.GotConnInfo{})
			return f.roundTrip(handler, request)
		})
		asking, err := client.New("http://facade.test", client.WithHTTPClient(&http.Client{Transport: transport}))
		if err != nil {
			t.Fatal(err)
		}
		d := &direct{Backend: locktest.New()}
		if _, err := client.InLine(d, asking).Acquire(t.Context(), namespace, waiting(30*time.Second)); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("got %v, want ErrTimeout", err)
		}
		d.want(t)
	})
}

// What a caller does beside its wait does not end that.
func TestInLineALookThatIsNotAnsweredEndsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.locks.letWaitsEnd()
		f.hold("k", "other")
		handler := newHandler(t, f.locks, func(*testfacade.Settings) {})
		asked := 0
		transport := transportFunc(func(request *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(request.Context())
			if trace != nil {
				trace.GetConn("facade.test:80")
			}
			body, err := io.ReadAll(request.Body)
			if err != nil {
				return nil, err
			}
			if strings.Contains(string(body), ":status") {
				<-request.Context().Done()
				return nil, request.Context().Err()
			}
			if trace != nil {
				trace.GotConn(httptrace.GotConnInfo{})
			}
			asked++
			if asked == 1 {
				<-time.After(time.Second)
				return nil, errReset
			}
			request.Body = io.NopCloser(bytes.NewReader(body))
			return f.roundTrip(handler, request)
		})
		asking, err := client.New("http://facade.test", client.WithHTTPClient(&http.Client{Transport: transport}))
		if err != nil {
			t.Fatal(err)
		}
		d := &direct{Backend: locktest.New()}
		began := time.Now()
		if _, err := client.InLine(d, asking).Acquire(t.Context(), namespace, waiting(30*time.Second)); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("got %v, want ErrTimeout", err)
		}
		if took := time.Since(began); took < 30*time.Second {
			t.Errorf("the wait has ended after %s", took)
		}
		d.want(t)
		asking.Close()
	})
}

// A lost acquire is given up for its own grant alone: its owner may have the lock again when the request arrives.
func TestAnAcquireIsGivenUpForItsOwnGrant(t *testing.T) {
	f := newFixture(t)
	f.befall(lostAnswer, answered(403, "no"))
	_, _ = f.Acquire(t.Context(), namespace, chosen("k"))
	for _, call := range f.locks.Calls() {
		if call.Verb == locktest.Release && call.Proof.FencingToken == 0 {
			t.Errorf("released by %+v, want a fencing token", call.Proof)
		}
	}
	f.wantHeld()
}
