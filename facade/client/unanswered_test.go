package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// chosen is a request with an owner token of the caller's own.
func chosen(key string) lock.Request {
	request := forKey(key)
	request.Owner = "job-17"
	return request
}

// garbage are answers that tell nothing about the request, which was carried out.
var garbage = map[string]fault{
	"a reset":                  lostAnswer,
	"a page":                   answered(200, "<html>welcome</html>"),
	"nothing":                  answered(200, ""),
	"a bad gateway":            answered(502, "<html>Bad Gateway</html>"),
	"a proxy that would wait":  answered(408, ""),
	"half an answer":           answered(200, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"`),
	"another protocol":         answered(200, `{"protocol":{"name":"forrst","version":"1.0.0"},"id":"a","result":{}}`),
	"the answer to another":    answered(200, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a","result":{"key":"k","acquired":true}}`),
	"a failure behind a proxy": answered(500, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":null,"result":null,"errors":[{"code":"INTERNAL_ERROR","message":"m"}]}`),
}

func TestAcquireWhoseAnswerIsLost(t *testing.T) {
	for name, fault := range garbage {
		for _, request := range []lock.Request{forKey("k"), chosen("k")} {
			t.Run(name+" for owner "+request.Owner, func(t *testing.T) {
				f := newFixture(t)
				f.befall(fault)
				got, err := f.Acquire(t.Context(), namespace, request)
				if name == "a failure behind a proxy" {
					// The façade has said that it failed; nothing may be left.
					if err == nil {
						t.Error("no error")
					}
					f.wantHeld()
					return
				}
				if err != nil || got.Spec.Owner != f.locks.requests()[0].Owner || *got.Spec.FencingToken != 1 {
					t.Errorf("got %v, %v", got, err)
				}
				f.wantHeld("lock:k")
				f.wantCalls("acquire", "status", "renew")
			})
		}
	}
}

func TestAcquireWhoseAnswerAndStatusAreLost(t *testing.T) {
	f := newFixture(t)
	f.befall(lostAnswer, lostRequest, answered(503, ""))
	if _, err := f.Acquire(t.Context(), namespace, forKey("k")); err != nil {
		t.Error(err)
	}
	f.wantCalls("acquire", "status", "status", "status", "renew")
}

// The façade learns after the status that its client has gone, and ends the grant.
func TestAcquireWhoseGrantIsEndedAfterItsStatus(t *testing.T) {
	for _, request := range []lock.Request{forKey("k"), chosen("k")} {
		f := newFixture(t)
		f.befall(lostAnswer, nil, func(carry func() (*http.Response, error)) (*http.Response, error) {
			if err := f.locks.ForceRelease(t.Context(), namespace, "lock:k", ""); err != nil {
				t.Error(err)
			}
			return carry()
		})
		if got, err := f.Acquire(t.Context(), namespace, request); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v, %v, want ErrUnavailable", got, err)
		}
		f.wantHeld()
	}
}

func TestAcquireWhoseRenewalIsLost(t *testing.T) {
	for title, lost := range map[string]fault{"with its answer": lostAnswer, "before it arrived": lostRequest} {
		t.Run(title, func(t *testing.T) {
			f := newFixture(t)
			f.befall(lostAnswer, nil, lost)
			if _, err := f.Acquire(t.Context(), namespace, forKey("k")); err != nil {
				t.Error(err)
			}
			f.wantCalls("acquire", "status", "renew", "status", "renew")
			f.wantHeld("lock:k")
		})
	}
}

// Nothing can be learnt, so what may have been got is released.
func TestAcquireThatCannotBeSettledIsReleased(t *testing.T) {
	forbidden := answered(403, "no")
	for _, request := range []lock.Request{forKey("k"), chosen("k")} {
		f := newFixture(t)
		f.befall(lostAnswer, forbidden)
		if _, err := f.Acquire(t.Context(), namespace, request); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		f.wantHeld()
	}
}

func TestAcquireThatDidNotArrive(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "job-17")
	for _, request := range []lock.Request{forKey("k"), forKey("free"), chosen("free")} {
		f.befall(lostRequest)
		if _, err := f.Acquire(t.Context(), namespace, request); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) {
			t.Errorf("got %v", err)
		}
		f.wantHeld("lock:k")
	}
}

// A token that is used again may belong to a lock of an earlier acquisition, which is
// neither this one's success nor its to release.
func TestOwnerTokenThatIsInUse(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "job-17")
	f.locks.clock.SetTime(f.locks.clock.Now().Add(10 * time.Second))
	f.befall(lostAnswer)
	if got, err := f.Acquire(t.Context(), namespace, chosen("k")); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v, %v", got, err)
	}
	f.wantHeld("lock:k")
}

func TestAcquireThatIsCancelledWhenItsAnswerIsLost(t *testing.T) {
	for _, request := range []lock.Request{forKey("k"), chosen("k"), waiting(time.Second)} {
		f := newFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		f.befall(func(carry func() (*http.Response, error)) (*http.Response, error) {
			response, err := lostAnswer(carry)
			cancel()
			return response, err
		}, lostRequest)
		if _, err := f.Acquire(ctx, namespace, request); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		f.Close() // What takes longer than the caller has time for goes on.
		f.wantHeld()
	}
}

// The façade may carry out what was sent first after what was sent later.
func TestAcquireThatArrivesAfterItsRelease(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	var overtaken func() (*http.Response, error)
	f.befall(func(carry func() (*http.Response, error)) (*http.Response, error) {
		overtaken = func() (*http.Response, error) { return lostAnswer(carry) }
		cancel()
		return nil, errReset
	}, func(carry func() (*http.Response, error)) (*http.Response, error) {
		response, err := carry()
		if _, overtakenErr := overtaken(); !errors.Is(overtakenErr, errReset) {
			t.Error("the overtaken request was answered")
		}
		return response, err
	})
	f.isDetached.Store(true)
	if _, err := f.Acquire(ctx, namespace, forKey("k")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f.wantCalls("acquire", "release", "release")
	f.wantHeld()
}

func TestFacadeThatDoesNotAnswerInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, client.WithTimeout(10*time.Second))
		f.isSilent = true
		start := time.Now()
		_, err := f.Acquire(t.Context(), namespace, forKey("k"))
		if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("gave up after %s", took)
		}
		start = time.Now()
		if err := f.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o"}); !errors.Is(err, lock.ErrUnavailable) || time.Since(start) > 10*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		if _, err := f.Renew(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o"}, 0); !errors.Is(err, lock.ErrUnavailable) {
			t.Error(err)
		}
	})
}

// With an owner token of the caller's own, the release of what it may have got is waited for.
func TestHowLateAnAcquireReturnsFromASilentFacade(t *testing.T) {
	for request, late := range map[*lock.Request]time.Duration{new(forKey("k")): 50 * time.Millisecond, new(chosen("k")): 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, client.WithTimeout(10*time.Second))
			f.isSilent = true
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			if _, err := f.Acquire(ctx, namespace, *request); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took > time.Second+late {
				t.Errorf("owner %q: returned after %s", request.Owner, took)
			}
			f.Close()
		})
	}
}

func TestReleaseWhoseAnswerIsLost(t *testing.T) {
	for name, lost := range garbage {
		if strings.HasPrefix(name, "a failure") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.hold("k", "o")
				f.befall(lost)
				if err := f.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o"}); err != nil {
					t.Error(err)
				}
				f.wantCalls("release", "release")
				f.wantHeld()
			})
		})
	}
}

// By the time of a second request, another holder may have the lock.
func TestAForcedReleaseIsSentOnce(t *testing.T) {
	for name, lost := range garbage {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.hold("k", "o")
				f.befall(lost)
				isFailure := strings.HasPrefix(name, "a failure")
				if err := f.ForceRelease(t.Context(), namespace, "lock:k", ""); err == nil || errors.Is(err, lock.ErrUnavailable) == isFailure {
					t.Errorf("got %v", err)
				}
				f.wantCalls("force-release")
			})
		})
	}
}

func TestReleaseIsRepeatedUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.hold("k", "o")
		f.befall(lostRequest, answered(503, ""), answered(502, ""))
		if err := f.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o"}); err != nil {
			t.Error(err)
		}
		f.wantCalls("release", "release", "release", "release")
		f.wantHeld()
	})
}

func TestReleaseAfterALostAnswerTellsWhatItFinds(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "o")
	f.befall(lostRequest)
	if err := f.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "p"}); !errors.Is(err, lock.ErrOwnerMismatch) || !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	f.locks.clock.SetTime(f.locks.clock.Now().Add(time.Hour))
	f.befall(lostRequest)
	if err := f.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o"}); !errors.Is(err, lock.ErrExpired) {
		t.Errorf("got %v", err)
	}
}

// The release may have handed the lock to the next in line, who has it by the time of the second try.
func TestAHeldLockIsReleasedThoughTheAnswerIsLostAndTheNextHasIt(t *testing.T) {
	f := newFixture(t)
	held, err := lock.NewClient(f, namespace, lock.WithoutRenewal()).Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	f.befall(func(carry func() (*http.Response, error)) (*http.Response, error) {
		_, err := lostAnswer(carry)
		f.hold("k", "next")
		return nil, err
	})
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("got %v", err)
	}
	f.wantHeld("lock:k")
}

func TestReleaseGoesOnWhenItsContextEnds(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "o")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Release(ctx, namespace, "lock:k", lock.Proof{Owner: "o"}); err != nil {
		t.Error(err)
	}
	f.wantHeld()
}

func TestReadsAndRenewalsEndWithTheirContext(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "o")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, got := f.Get(ctx, namespace, "lock:k")
	_, listed := f.List(ctx, namespace, lock.Filter{})
	_, renewed := f.Renew(ctx, namespace, "lock:k", lock.Proof{Owner: "o"}, 0)
	for _, err := range []error{got, listed, renewed} {
		if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
}

// A façade that ignores the number of the grant may have renewed another one.
func TestARenewalOfAnotherGrantThanTheProof(t *testing.T) {
	f := newFixture(t)
	f.fixed = `{"renewed":true,"full_key":"lock:k","owner":"o","fencing_token":7,"ttl":{"value":60},"acquired_at":"2024-03-15T10:30:00Z","renewed_at":"2024-03-15T10:30:00Z","expires_at":"2024-03-15T10:31:00Z"}`
	for fencing, want := range map[int64]error{0: nil, 7: nil, 6: lock.ErrUnavailable} {
		if _, err := f.Renew(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o", FencingToken: fencing}, 0); !errors.Is(err, want) {
			t.Errorf("a proof of grant %d: got %v, want %v", fencing, err, want)
		}
	}
}

func TestResultsThatCannotBeRead(t *testing.T) {
	stamps := `"acquired_at":"2024-03-15T10:30:00Z","renewed_at":"2024-03-15T10:30:00Z","expires_at":"2024-03-15T10:31:00Z"`
	for _, result := range []string{
		`{"acquired":true,"renewed":true,"full_key":"lock:k","owner":"another",` + stamps + `}`,
		`{"acquired":true,"renewed":true,"full_key":"lock:another","owner":"job-17",` + stamps + `}`,
		`{"full_key":"lock:k","owner":"job-17",` + stamps + `}`,
		`null`, `7`, `{}`, `{"locked":true,"full_key":"lock:k","acquired_at":"soon"}`, `{"locks":[{"full_key":"lock:k"}]}`, `{"locks":7}`,
	} {
		f := newFixture(t, client.WithTimeout(20*time.Millisecond))
		f.fixed = result
		_, acquired := f.Acquire(t.Context(), namespace, chosen("k"))
		_, renewed := f.Renew(t.Context(), namespace, "lock:k", lock.Proof{Owner: "job-17"}, 0)
		for what, err := range map[string]error{"acquire": acquired, "renew": renewed} {
			if !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("%s: result %s: %v", what, result, err)
			}
		}
		if got, err := f.Get(t.Context(), namespace, "lock:k"); err == nil {
			t.Errorf("result %s: got %v", result, got)
		}
		if got, err := f.List(t.Context(), namespace, lock.Filter{}); err == nil && len(got) > 0 {
			t.Errorf("result %s: listed %v", result, got)
		}
	}
}

// A caller may acquire again with its own owner token as soon as the first call has returned: nothing of that call may
// release the next grant.
func TestNothingGoesOnBehindACallerWithAnOwnerTokenOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		slow := func(carry func() (*http.Response, error)) (*http.Response, error) {
			<-time.After(100 * time.Millisecond)
			return carry()
		}
		lost := func(func() (*http.Response, error)) (*http.Response, error) {
			<-time.After(100 * time.Millisecond)
			return nil, io.ErrUnexpectedEOF
		}
		f.befall(append([]fault{lost}, slices.Repeat([]fault{slow}, 4)...)...)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := f.Acquire(ctx, namespace, chosen("k")); err == nil {
			t.Fatal("the lock is said to be acquired")
		}
		calls := f.calls
		<-time.After(time.Minute)
		synctest.Wait()
		if len(f.calls) != len(calls) {
			t.Errorf("after the answer the client still calls %v", f.calls[len(calls):])
		}
	})
}

// What the façade has refused before it did anything has ended no lock: of two releases that were both refused at first, one is
// told that it ended the lock.
func TestOneOfTwoReleasesThatWereRefusedFirstHasEndedTheLock(t *testing.T) {
	for name, refuse := range map[string]func(f *fixture) (end func()){
		"by a limit": func(f *fixture) func() {
			began, end := make(chan struct{}), make(chan struct{})
			f.locks.SetHooks(locktest.Hooks{Before: func(_ context.Context, call locktest.Call) error {
				if call.Verb == locktest.Get {
					close(began)
					<-end
				}
				return nil
			}})
			go func() { _, _ = f.Get(f.t.Context(), namespace, "lock:k") }() // It is the only call that may run.
			<-began
			return func() { close(end) }
		},
		"by the API server": func(f *fixture) func() {
			f.locks.fail(fmt.Errorf("%w: too many requests; %w", lock.ErrUnavailable, lock.ErrNothingDone))
			return func() { f.locks.SetHooks(locktest.Hooks{}) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixtureWith(t, func(config *testfacade.Settings) { config.Server.Limits.InFlight = 1 })
				f.hold("k", "o")
				end := refuse(f)
				told := make(chan error, 2)
				for range cap(told) {
					go func() { told <- f.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o"}) }()
				}
				synctest.Wait()
				end()
				ended := 0
				for range cap(told) {
					switch err := <-told; {
					case err == nil:
						ended++
					case !errors.Is(err, lock.ErrNotHeld):
						t.Errorf("a release is told %v", err)
					}
				}
				if ended != 1 {
					t.Errorf("%d releases are told that they ended the lock", ended)
				}
			})
		})
	}
}
