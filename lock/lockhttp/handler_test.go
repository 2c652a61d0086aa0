package lockhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/lockhttp"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/problems"
)

// mustHold returns the lock that a handler runs under.
func (f *fixture) mustHold(ctx context.Context) *lock.Held {
	f.t.Helper()
	held, ok := lockhttp.FromContext(ctx)
	if !ok || held.Err() != nil || held.Key() != key {
		f.t.Fatalf("the handler runs under the lock %v", held)
	}
	return held
}

func TestAWriteWithATokenBeginsWithAWholeTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *lockhttp.Config) { c.Options = []lock.Option{lock.WithTTL(time.Second)} })
		token := f.acquire(flagLock, aMinute)
		pass(50 * time.Second)
		f.edit = func(w http.ResponseWriter, r *http.Request) {
			held := f.mustHold(r.Context())
			if left := time.Until(held.Deadline()); left != time.Minute || held.FencingToken() != 1 {
				t.Errorf("%s left of grant %d", left, held.FencingToken())
			}
			w.WriteHeader(http.StatusAccepted)
		}
		f.do(http.MethodPatch, flag, "{}", "X-Lock-Token", token).want(http.StatusAccepted)
		pass(59 * time.Second)
		f.wantHeld() // The request has left it as it was.
		f.do(http.MethodPatch, flag, "{}").want(http.StatusLocked, problems.LockHeld)
		pass(time.Second)
		f.edit = func(http.ResponseWriter, *http.Request) { t.Error("the flag was written") }
		f.do(http.MethodPatch, flag, "{}", "X-Lock-Token", token).want(http.StatusGone, problems.LockEnded)
	})
}

func TestAWriteWithoutATokenIsUnderALockOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		// The requests of others, whose contexts know nothing of this lock.
		others := func() {
			f.wantHeld()
			f.do(http.MethodPost, flagLock, aMinute).want(http.StatusLocked, problems.LockHeld)
			f.do(http.MethodPatch, flag, "{}").want(http.StatusLocked, problems.LockHeld)
		}
		f.edit = func(w http.ResponseWriter, r *http.Request) {
			f.mustHold(r.Context())
			others()
			w.WriteHeader(http.StatusAccepted)
		}
		for _, method := range []string{http.MethodPatch, http.MethodPut, http.MethodPost, http.MethodDelete, "PURGE"} {
			f.do(method, flag, "{}").want(http.StatusAccepted)
			f.wantFree()
		}
	})
}

func TestReadsAreNeverBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		token := f.acquire(flagLock, aMinute)
		f.edit = func(w http.ResponseWriter, r *http.Request) {
			if held, ok := lockhttp.FromContext(r.Context()); ok {
				t.Errorf("a read is under %v", held)
			}
			w.WriteHeader(http.StatusAccepted)
		}
		f.backend.SetUnavailable(true)
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace} {
			f.do(method, flag, "").want(http.StatusAccepted)
			f.do(method, flag, "", "X-Lock-Token", token).want(http.StatusAccepted)
			f.do(method, "/v1/flags/unknown", "").want(http.StatusAccepted)
		}
		if made := f.requests(); len(made) > 0 {
			t.Errorf("requests %v", made)
		}
	})
}

func TestAWriteMayWaitForTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *lockhttp.Config) { c.Options = []lock.Option{lock.WithWait(time.Minute)} })
		f.acquire(flagLock, `{"ttl_seconds":5}`)
		began := time.Now()
		f.do(http.MethodPatch, flag, "{}").want(http.StatusNoContent)
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("waited for %s", waited)
		}
	})
}

// Options may not give two writes one owner token.
func TestAnOwnerTokenOfTheOptionsIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *lockhttp.Config) { c.Options = []lock.Option{lock.WithOwner("shared")} })
		f.edit = func(_ http.ResponseWriter, r *http.Request) {
			if f.mustHold(r.Context()).Owner() == "shared" {
				t.Error("the owner token is shared")
			}
		}
		f.do(http.MethodPatch, flag, "{}").want(http.StatusOK)
	})
}

func TestALockOfAFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *lockhttp.Config) { c.Options = []lock.Option{lock.WithFunction("flags")} })
		token := f.acquire(flagLock, aMinute)
		f.do(http.MethodPatch, flag, "{}").want(http.StatusLocked, problems.LockHeld)
		f.do(http.MethodPatch, flag, "{}", "X-Lock-Token", token).want(http.StatusNoContent)
		f.do(http.MethodPut, flagLock, aMinute, "X-Lock-Token", token).want(http.StatusOK)
		f.do(http.MethodGet, flagLock, "").want(http.StatusOK)
		f.do(http.MethodDelete, flagLock, "", "X-Lock-Token", token).want(http.StatusNoContent)
		f.wantFree()
	})
}

// A request that takes longer than the ttl keeps its lock, unless renewal is turned off.
func TestALongWrite(t *testing.T) {
	for name, test := range map[string]struct {
		options []lock.Option
		status  int
	}{
		"is renewed":                   {nil, http.StatusNoContent},
		"ends with its ttl without it": {[]lock.Option{lock.WithoutRenewal()}, http.StatusGone},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, func(c *lockhttp.Config) { c.Options = test.options })
			f.edit = func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Minute):
					w.WriteHeader(http.StatusNoContent)
				}
			}
			token := f.acquire(flagLock, aMinute)
			f.do(http.MethodPatch, flag, "{}", "X-Lock-Token", token).want(test.status)
		})
	}
}

func TestALockThatIsLostWhileItsRequestIsServed(t *testing.T) {
	broken := func(f *fixture) {
		if err := f.backend.ForceRelease(f.t.Context(), "shop", key, "stuck"); err != nil {
			f.t.Error(err)
		}
	}
	away := func(f *fixture) { f.backend.SetUnavailable(true) }
	untilLoss := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	cases := map[string]struct {
		hasToken bool
		end      func(f *fixture)
		// serve runs after the end.
		serve  func(w http.ResponseWriter, r *http.Request)
		status int
		kind   *problems.Kind
		cause  error
	}{
		"with a token":           {true, broken, untilLoss, 410, problems.LockEnded, lock.ErrNotHeld},
		"without a token":        {false, broken, untilLoss, 503, problems.Unavailable, lock.ErrForceReleased},
		"unrenewed with a token": {true, away, untilLoss, 503, problems.Unavailable, lock.ErrUnavailable},
		"unrenewed without one":  {false, away, untilLoss, 503, problems.Unavailable, lock.ErrUnavailable},
		"after the answer has begun": {true, broken, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			<-r.Context().Done()
		}, 202, nil, lock.ErrNotHeld},
		"after the handler has answered for itself": {true, broken, func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			_, _ = io.WriteString(w, "half done")
		}, 200, nil, lock.ErrNotHeld},
		"after an informational answer": {true, broken, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			<-r.Context().Done()
		}, 410, problems.LockEnded, lock.ErrNotHeld},
	}
	for name, test := range cases {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			var headers []string
			if test.hasToken {
				headers = []string{"X-Lock-Token", f.acquire(flagLock, aMinute)}
			}
			f.edit = func(w http.ResponseWriter, r *http.Request) {
				synctest.Wait() // The watch has begun.
				test.end(f)
				test.serve(w, r)
				if cause := context.Cause(r.Context()); !errors.Is(cause, test.cause) {
					t.Errorf("cause %v, want %v", cause, test.cause)
				}
			}
			request := newRequest(t.Context(), http.MethodPatch, flag, "{}", headers...)
			recorder := &finalRecorder{ResponseRecorder: httptest.NewRecorder()}
			f.handler.ServeHTTP(recorder, request)
			got := answer{t, recorder.Code, recorder.Header(), recorder.Body.String()}
			if test.kind == nil {
				got.want(test.status)
			} else {
				got.want(test.status, test.kind)
			}
			f.backend.SetUnavailable(false)
			if !strings.Contains(f.log.String(), string(key)) || test.hasToken && strings.Contains(f.log.String(), headers[1]) {
				t.Errorf("logged: %s", f.log)
			}
		})
	}
}

// finalRecorder leaves informational answers out, which a ResponseRecorder takes for the answer.
type finalRecorder struct{ *httptest.ResponseRecorder }

func (w *finalRecorder) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.ResponseRecorder.WriteHeader(status)
	}
}

// A handler that ends the hold by itself has not lost the lock.
func TestAHandlerThatReleasesItsLock(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, held *lock.Held) error{
		"releases": func(ctx context.Context, held *lock.Held) error { return held.Release(ctx) },
		"detaches": func(_ context.Context, held *lock.Held) error { return held.Detach() },
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			f.edit = func(_ http.ResponseWriter, r *http.Request) {
				if err := end(r.Context(), f.mustHold(r.Context())); err != nil {
					t.Error(err)
				}
			}
			f.do(http.MethodPatch, flag, "{}").want(http.StatusOK)
			token := f.acquire("/v1/flags/other/lock", aMinute)
			f.edit = func(_ http.ResponseWriter, r *http.Request) {
				held, _ := lockhttp.FromContext(r.Context())
				if err := end(r.Context(), held); err != nil {
					t.Error(err)
				}
			}
			f.do(http.MethodPatch, "/v1/flags/other", "{}", "X-Lock-Token", token).want(http.StatusOK)
			if f.log.Len() > 0 {
				t.Errorf("logged: %s", f.log)
			}
		})
	}
}

func TestAReleaseThatFailsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.backend.SetHooks(locktest.Hooks{Before: locktest.Failing(locktest.Release, lock.ErrUnavailable)})
		f.do(http.MethodPatch, flag, "{}").want(http.StatusNoContent)
		if !strings.Contains(f.log.String(), string(key)) || strings.Contains(f.log.String(), f.backend.All()[0].Spec.Owner) {
			t.Errorf("logged: %s", f.log)
		}
	})
}

func TestAPanicEndsTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.edit = func(http.ResponseWriter, *http.Request) { panic("out of paper") }
		panicked := func(headers ...string) {
			t.Helper()
			defer func() {
				if cause := recover(); cause != "out of paper" {
					t.Errorf("panicked with %v", cause)
				}
			}()
			f.do(http.MethodPatch, flag, "{}", headers...)
		}
		panicked()
		f.wantFree()
		token := f.acquire(flagLock, aMinute)
		panicked("X-Lock-Token", token)
		f.wantHeld()
		f.edit = func(http.ResponseWriter, *http.Request) {}
		f.do(http.MethodPatch, flag, "{}", "X-Lock-Token", token).want(http.StatusOK)
	})
}

func TestAClientThatLeavesDuringItsWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		leaving, leave := context.WithCancel(t.Context())
		f.edit = func(_ http.ResponseWriter, r *http.Request) {
			leave()
			<-r.Context().Done()
		}
		f.doIn(leaving, http.MethodPatch, flag, "{}")
		f.wantFree()

		// One that leaves while the lock is being acquired.
		f.edit = func(http.ResponseWriter, *http.Request) { t.Error("the flag was written") }
		f.doIn(leaving, http.MethodPatch, flag, "{}").want(http.StatusServiceUnavailable, problems.Unavailable)
		f.wantFree()
		if f.log.Len() > 0 {
			t.Errorf("logged: %s", f.log)
		}
	})
}

func TestWritesWithOneTokenDoNotExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		token := f.acquire(flagLock, aMinute)
		both := make(chan struct{})
		f.edit = func(w http.ResponseWriter, r *http.Request) {
			select {
			case both <- struct{}{}:
			case <-both:
			}
			// The end of the one does not end the lock of the other.
			pass(time.Duration(len(r.URL.RawQuery)) * time.Minute)
			f.mustHold(r.Context())
			w.WriteHeader(http.StatusAccepted)
		}
		answers := make(chan answer)
		for _, query := range []string{"?a", "?aaa"} {
			go func() { answers <- f.do(http.MethodPatch, flag+query, "{}", "X-Lock-Token", token) }()
		}
		(<-answers).want(http.StatusAccepted)
		(<-answers).want(http.StatusAccepted)
		f.wantHeld()
	})
}

// A resource that was put behind its lock twice would wait for itself.
func TestAHandlerInsideOfAnother(t *testing.T) {
	f := newFixture(t)
	inner := f.handler
	f.edit = func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, r) }
	f.do(http.MethodPatch, flag, "{}").want(http.StatusInternalServerError, problems.InternalError)
	f.wantFree()
}
