package lockhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/lockhttp"
	"forrst.dev/lock-operator/lock/problems"
)

// A request whose body does not come must not keep the lock.
func TestAClientThatSendsNoBodyDoesNotKeepTheLock(t *testing.T) {
	briefly := func(c *lockhttp.Config) { c.MaxDuration = 50 * time.Millisecond }
	asUsual := func(*lockhttp.Config) {}
	cases := map[string]struct {
		hasToken  bool
		configure func(*lockhttp.Config)
		isBroken  bool
		status    int
	}{
		"for longer than MaxDuration":              {false, briefly, false, 503},
		"for longer than MaxDuration with a token": {true, briefly, false, 503},
		"that is released by force":                {false, asUsual, true, 503},
		"with a token that is released by force":   {true, asUsual, true, 410},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.configure)
			header := "Content-Length: 2\r\n"
			if test.hasToken {
				header += "X-Lock-Token: " + f.acquire(flagLock, aMinute) + "\r\n"
			}
			f.edit = func(_ http.ResponseWriter, r *http.Request) {
				if test.isBroken {
					if err := f.backend.ForceRelease(r.Context(), "shop", key, "stuck"); err != nil {
						t.Error(err)
					}
				}
				if _, err := io.ReadAll(r.Body); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the read ended with %v", err)
				}
			}
			server := httptest.NewServer(f.handler)
			defer server.Close()
			connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = connection.Close() }()
			_ = connection.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprintf(connection, "PATCH %s HTTP/1.1\r\nHost: flags\r\n%s\r\n", flag, header)
			response, err := http.ReadResponse(bufio.NewReader(connection), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != test.status {
				t.Errorf("status %d, want %d", response.StatusCode, test.status)
			}
			if !test.hasToken || test.isBroken {
				f.wantFree()
			} else {
				f.wantHeld() // by the client, for the rest of its ttl
			}
		})
	}
}

func aMinuteLong(c *lockhttp.Config) { c.MaxDuration = time.Minute }

func TestTheContextEndsAfterMaxDuration(t *testing.T) {
	for name, hasToken := range map[string]bool{"with a token": true, "without a token": false} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, aMinuteLong)
			var headers []string
			if hasToken {
				headers = []string{"X-Lock-Token", f.acquire(flagLock, `{"ttl_seconds":9}`)}
			}
			began := time.Now()
			f.edit = func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				if took := time.Since(began); took != time.Minute {
					t.Errorf("the context ended after %s", took)
				}
				if cause := context.Cause(r.Context()); !errors.Is(cause, context.DeadlineExceeded) || !strings.Contains(cause.Error(), "MaxDuration") {
					t.Errorf("cause %v", cause)
				}
			}
			got := f.do(http.MethodPatch, flag, "{}", headers...).want(http.StatusServiceUnavailable, problems.Unavailable)
			if !strings.Contains(got.body, "took longer") {
				t.Errorf("told %s", got.body)
			}
			if !strings.Contains(f.log.String(), "MaxDuration") || !strings.Contains(f.log.String(), string(key)) {
				t.Errorf("logged: %s", f.log)
			}
			if !hasToken {
				f.wantFree()
				return
			}
			f.wantHeld()
			pass(9 * time.Second)
			f.do(http.MethodGet, flagLock, "").want(http.StatusNotFound, problems.LockNotFound)
		})
	}
}

// Other clients get the lock after MaxDuration and one ttl at the latest, and keep it.
func TestAHandlerThatIgnoresItsContextIsNotRenewedForEver(t *testing.T) {
	for name, hasToken := range map[string]bool{"with a token": true, "without a token": false} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, aMinuteLong, func(c *lockhttp.Config) { c.Options = []lock.Option{lock.WithTTL(9 * time.Second)} })
			var headers []string
			if hasToken {
				headers = []string{"X-Lock-Token", f.acquire(flagLock, `{"ttl_seconds":9}`)}
			}
			goOn, answered := make(chan struct{}), make(chan answer)
			f.edit = func(http.ResponseWriter, *http.Request) { <-goOn }
			go func() { answered <- f.do(http.MethodPatch, flag, "{}", headers...) }()
			pass(time.Minute)
			synctest.Wait()
			f.do(http.MethodPost, flagLock, aMinute).want(http.StatusLocked, problems.LockHeld) // The handler may still write.
			pass(9 * time.Second)
			f.acquire(flagLock, aMinute)
			close(goOn)
			(<-answered).want(http.StatusServiceUnavailable, problems.Unavailable)
			f.wantHeld() // by the other client
		})
	}
}

func TestMaxDurationHasADefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.edit = func(_ http.ResponseWriter, r *http.Request) {
			if end, ok := r.Context().Deadline(); !ok || time.Until(end) != lockhttp.DefaultMaxTTL {
				t.Errorf("the context ends at %v", end)
			}
		}
		f.do(http.MethodPatch, flag, "{}").want(http.StatusOK)
	})
}

// connectionWriter counts how often its reads are ended, which takes a second.
type connectionWriter struct {
	*httptest.ResponseRecorder

	ended int
}

func (w *connectionWriter) SetReadDeadline(at time.Time) error {
	if at.After(time.Now()) || at.IsZero() {
		return errors.New("it goes on")
	}
	pass(time.Second)
	w.ended++
	return nil
}

func (w *connectionWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

func TestReadsOfTheBodyEndWithTheLock(t *testing.T) {
	broken := func(f *fixture, r *http.Request) {
		synctest.Wait() // The watch has begun.
		if err := f.backend.ForceRelease(r.Context(), "shop", key, "stuck"); err != nil {
			f.t.Error(err)
		}
		<-r.Context().Done()
	}
	cases := map[string]struct {
		edit  func(f *fixture, w http.ResponseWriter, r *http.Request)
		ended int
	}{
		"that is lost": {func(f *fixture, _ http.ResponseWriter, r *http.Request) { broken(f, r) }, 1},
		"but not if the handler released it": {func(f *fixture, _ http.ResponseWriter, r *http.Request) {
			_ = f.mustHold(r.Context()).Release(r.Context())
		}, 0},
		"but not if the handler detached it": {func(f *fixture, _ http.ResponseWriter, r *http.Request) {
			_ = f.mustHold(r.Context()).Detach()
		}, 0},
		"but not on a connection that was hijacked": {func(f *fixture, w http.ResponseWriter, r *http.Request) {
			if _, _, err := http.NewResponseController(w).Hijack(); err != nil {
				f.t.Error(err)
			}
			broken(f, r)
		}, 0},
		"but not after the handler": {func(*fixture, http.ResponseWriter, *http.Request) {}, 0},
	}
	for name, test := range cases {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			f.edit = func(w http.ResponseWriter, r *http.Request) {
				test.edit(f, w, r)
				synctest.Wait()
			}
			w := &connectionWriter{ResponseRecorder: httptest.NewRecorder()}
			f.handler.ServeHTTP(w, newRequest(t.Context(), http.MethodPatch, flag, "{}"))
			// Afterwards the connection is not the handler's.
			if w.ended != test.ended {
				t.Errorf("reads were ended %d times, want %d", w.ended, test.ended)
			}
		})
	}
}

// The server reads ahead once it has the whole body. A deadline in the past would then end the context of
// each later request on the connection.
func TestALossLeavesTheConnectionToLaterRequests(t *testing.T) {
	for name, test := range map[string]struct {
		text     string
		hasBegun bool
	}{
		"with a body": {"{}", true}, "without a body": {"", true}, "with a body, before the answer": {"{}", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(*lockhttp.Config) {})
			first := true
			f.edit = func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err != nil {
					t.Error(err)
				}
				if !first {
					if err := r.Context().Err(); err != nil {
						t.Errorf("the context of the next request: %v", err)
					}
					return
				}
				first = false
				if test.hasBegun {
					w.WriteHeader(http.StatusOK)
				}
				if err := f.backend.ForceRelease(r.Context(), "shop", key, "stuck"); err != nil {
					t.Error(err)
				}
				<-r.Context().Done()
			}
			server := httptest.NewServer(f.handler)
			defer server.Close()
			for number := range 2 {
				isLoss := number == 0 && !test.hasBegun
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL+flag, strings.NewReader(test.text))
				if err != nil {
					t.Fatal(err)
				}
				response, err := server.Client().Do(request)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil || (response.StatusCode == http.StatusOK) == isLoss || response.Close != isLoss {
					t.Errorf("status %d, closed %t, %v", response.StatusCode, response.Close, err)
				}
				_ = response.Body.Close()
			}
		})
	}
}
