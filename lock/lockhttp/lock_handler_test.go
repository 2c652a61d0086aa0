package lockhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/lockhttp"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/problems"
)

func TestALockIsAResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		granted := f.do(http.MethodPost, flagLock, `{"ttl_seconds":60,"reason":"rollout"}`).want(http.StatusCreated)
		held := decode[lockhttp.Lock](granted)
		if granted.header.Get("Cache-Control") != "no-store" || granted.header.Get("Content-Type") != "application/json" {
			t.Errorf("headers %v", granted.header)
		}
		want := lockhttp.Lock{
			LockToken: held.LockToken, FencingToken: 1, Holder: "flags", Reason: "rollout", TTLSeconds: 60,
			AcquiredAt: problems.FormatTime(time.Now()), RenewedAt: problems.FormatTime(time.Now()), ExpiresAt: problems.FormatTime(time.Now().Add(time.Minute)),
		}
		if diff := cmp.Diff(want, held); diff != "" || held.LockToken == "" {
			t.Errorf("acquired (-want +got):\n%s", diff)
		}

		refused := f.do(http.MethodPost, flagLock, aMinute).want(http.StatusLocked, problems.LockHeld)
		problem := decode[problems.Document](refused)
		if problem.Holder != "flags" || problem.AcquiredAt != held.AcquiredAt || problem.ExpiresAt != held.ExpiresAt || !problem.Retryable || problem.Instance != flagLock {
			t.Errorf("told of the holder: %+v", problem)
		}
		if after := refused.header.Get("Retry-After"); after != "60" {
			t.Errorf("Retry-After %s", after)
		}

		pass(30 * time.Second)
		renewed := decode[lockhttp.Lock](f.do(http.MethodPut, flagLock, `{"ttl_seconds":90}`, "X-Lock-Token", held.LockToken).want(http.StatusOK))
		want.LockToken, want.TTLSeconds = "", 90
		want.RenewedAt, want.ExpiresAt = problems.FormatTime(time.Now()), problems.FormatTime(time.Now().Add(90*time.Second))
		if diff := cmp.Diff(want, renewed); diff != "" {
			t.Errorf("renewed (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, decode[lockhttp.Lock](f.do(http.MethodGet, flagLock, "").want(http.StatusOK))); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
		f.do(http.MethodHead, flagLock, "").want(http.StatusOK)

		f.do(http.MethodDelete, flagLock, "", "X-Lock-Token", held.LockToken).want(http.StatusNoContent)
		f.do(http.MethodGet, flagLock, "").want(http.StatusNotFound, problems.LockNotFound)
		f.do(http.MethodDelete, flagLock, "", "X-Lock-Token", held.LockToken).want(http.StatusGone, problems.LockEnded)
		f.wantFree()
		if f.log.Len() > 0 {
			t.Errorf("logged: %s", f.log)
		}
	})
}

func TestEachStepIsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		token := decode[lockhttp.Lock](f.do(http.MethodPost, flagLock, aMinute)).LockToken
		f.do(http.MethodPut, flagLock, aMinute, "X-Lock-Token", token)
		f.do(http.MethodPatch, flag, "{}", "X-Lock-Token", token)
		f.do(http.MethodGet, flagLock, "")
		f.do(http.MethodDelete, flagLock, "", "X-Lock-Token", token)
		f.do(http.MethodPatch, flag, "{}") // It acquires and releases.
		var made []locktest.Verb
		for _, call := range f.backend.Calls() {
			if call.Verb == locktest.Watch {
				continue
			}
			made = append(made, call.Verb)
			// A write past admission moves the number of a grant on. Its secret still proves it.
			if call.Proof.FencingToken != 0 {
				t.Errorf("%s depends on the number of the grant", call.Verb)
			}
		}
		want := []locktest.Verb{locktest.Acquire, locktest.Renew, locktest.Renew, locktest.Get, locktest.Release, locktest.Acquire, locktest.Release}
		if diff := cmp.Diff(want, made); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// The object has a hash in the form of a UUID, which every backend accepts, and nothing of the token.
func TestNoReaderOfLocksGetsTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		token := f.acquire(flagLock, aMinute)
		stored := f.backend.All()[0]
		if id, err := uuid.Parse(stored.Spec.Owner); err != nil || id.Version() != 4 {
			t.Errorf("the owner is %s", stored.Spec.Owner)
		}
		for part := range strings.SplitSeq(token, "_") {
			if len(part) > 5 && strings.Contains(fmt.Sprint(stored), part) {
				t.Errorf("the object shows %s of the token", part)
			}
		}
		for _, shown := range []string{stored.Spec.Owner, "lock_" + strings.ReplaceAll(stored.Spec.Owner, "-", "") + "_1_a"} {
			f.do(http.MethodPatch, flag, "{}", "X-Lock-Token", shown).want(http.StatusForbidden, problems.WrongToken)
			f.do(http.MethodDelete, flagLock, "", "X-Lock-Token", shown).want(http.StatusForbidden, problems.WrongToken)
		}
		if got := f.do(http.MethodGet, flagLock, "").body; strings.Contains(got, stored.Spec.Owner) || strings.Contains(got, "lock_token") {
			t.Errorf("shown: %s", got)
		}
		f.wantHeld()
	})
}

// withToken are the requests that show a token.
var withToken = map[string]func(f *fixture, token string) answer{
	"write": func(f *fixture, token string) answer {
		return f.do(http.MethodPatch, flag, "{}", "X-Lock-Token", token)
	},
	"renewal": func(f *fixture, token string) answer {
		return f.do(http.MethodPut, flagLock, aMinute, "X-Lock-Token", token)
	},
	"release": func(f *fixture, token string) answer {
		return f.do(http.MethodDelete, flagLock, "", "X-Lock-Token", token)
	},
}

func TestATokenOfAnEndedGrantIsGone(t *testing.T) {
	for name, end := range map[string]func(f *fixture, token string){
		"expired": func(*fixture, string) { pass(time.Minute) },
		"released": func(f *fixture, token string) {
			f.do(http.MethodDelete, flagLock, "", "X-Lock-Token", token).want(http.StatusNoContent)
		},
		"broken": func(f *fixture, _ string) {
			if err := f.backend.ForceRelease(f.t.Context(), "shop", key, "stuck"); err != nil {
				f.t.Error(err)
			}
		},
		"expired and taken over": func(f *fixture, _ string) { pass(time.Minute); f.acquire(flagLock, aMinute) },
	} {
		for request, send := range withToken {
			inBubble(t, request+" after it was "+name, func(t *testing.T) {
				f := newFixture(t)
				f.edit = func(http.ResponseWriter, *http.Request) { t.Error("the flag was written") }
				token := f.acquire(flagLock, aMinute)
				end(f, token)
				before := f.backend.All()
				send(f, token).want(http.StatusGone, problems.LockEnded)
				if diff := cmp.Diff(before, f.backend.All()); diff != "" {
					t.Errorf("the lock has changed (-before +after):\n%s", diff)
				}
			})
		}
	}
}

func TestATokenThatWasNeverTheLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.edit = func(http.ResponseWriter, *http.Request) { t.Error("the flag was written") }
		token := f.acquire(flagLock, aMinute)
		altered := []byte(token)
		altered[7] ^= 1
		for name, wrong := range map[string]string{
			"no token of this service": "3f0c", "of another lock": f.acquire("/v1/flags/other/lock", aMinute),
			"altered": string(altered), "of another grant": strings.Replace(token, "_1_", "_2_", 1), "in capitals": strings.ToUpper(token),
			"of a lock of a function": newReplica(t, f.backend, func(c *lockhttp.Config) { c.Options = []lock.Option{lock.WithFunction("f")} }).acquire(flagLock, aMinute),
			"of another namespace":    newReplica(t, f.backend, func(c *lockhttp.Config) { c.Client = lock.NewClient(f.backend, "other") }).acquire(flagLock, aMinute),
		} {
			for request, send := range withToken {
				f.requests()
				if got := send(f, wrong).want(http.StatusForbidden, problems.WrongToken); got.status != http.StatusForbidden {
					t.Errorf("%s with a token that is %s", request, name)
				}
				if made := f.requests(); len(made) > 0 {
					t.Errorf("%s with a token that is %s: requests %v", request, name, made)
				}
			}
		}
	})
}

func TestARequestWithoutItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		token := f.acquire(flagLock, aMinute)
		f.do(http.MethodPut, flagLock, aMinute).want(http.StatusBadRequest, problems.TokenRequired)
		f.do(http.MethodDelete, flagLock, "").want(http.StatusBadRequest, problems.TokenRequired)
		for _, send := range withToken {
			send(f, "").want(http.StatusBadRequest, problems.TokenRequired)
		}
		twice := newRequest(t.Context(), http.MethodPatch, flag, "{}", "X-Lock-Token", token)
		twice.Header.Add("X-Lock-Token", token)
		recorder := httptest.NewRecorder()
		f.handler.ServeHTTP(recorder, twice)
		answer{t, recorder.Code, recorder.Header(), recorder.Body.String()}.want(http.StatusBadRequest, problems.TokenRequired)
		f.wantHeld()
	})
}

func TestInvalidRequests(t *testing.T) {
	long := strings.Repeat("é", 1025)
	cases := map[string]struct {
		method, path, body string
		headers            []string
		status             int
		kind               *problems.Kind
		// field is what is wrong, if it is one, and detail is told of it.
		field, detail string
	}{
		"another method":            {method: http.MethodPatch, body: aMinute, status: 405, kind: problems.MethodNotAllowed},
		"no ttl":                    {body: `{}`, status: 400, kind: problems.InvalidRequest, field: "ttl_seconds"},
		"a ttl of null":             {body: `{"ttl_seconds":null}`, status: 400, kind: problems.InvalidRequest, field: "ttl_seconds"},
		"a ttl of zero":             {body: `{"ttl_seconds":0}`, status: 400, kind: problems.InvalidRequest, field: "ttl_seconds"},
		"a negative ttl":            {body: `{"ttl_seconds":-1}`, status: 400, kind: problems.InvalidRequest, field: "ttl_seconds"},
		"a ttl above the maximum":   {body: `{"ttl_seconds":1800.1}`, status: 400, kind: problems.InvalidRequest, field: "ttl_seconds"},
		"a ttl beyond all numbers":  {body: `{"ttl_seconds":1e999}`, status: 400, kind: problems.InvalidRequest, field: "ttl_seconds"},
		"a ttl that is a text":      {body: `{"ttl_seconds":"60"}`, status: 400, kind: problems.InvalidRequest, field: "ttl_seconds"},
		"two ttls":                  {body: `{"ttl_seconds":60,"ttl_seconds":1}`, status: 400, kind: problems.InvalidRequest, field: "ttl_seconds"},
		"half a character":          {body: `{"ttl_seconds":60,"reason":"\ud800"}`, status: 400, kind: problems.InvalidRequest, field: "reason"},
		"a wait, which none may":    {body: `{"ttl_seconds":60,"wait_seconds":1}`, status: 400, kind: problems.InvalidRequest, field: "wait_seconds"},
		"a long reason":             {body: `{"ttl_seconds":60,"reason":"` + long + `"}`, status: 400, kind: problems.InvalidRequest, field: "reason"},
		"a misspelled member":       {body: `{"ttl_seconds":60,"Reason":"r"}`, status: 400, kind: problems.InvalidRequest, field: "Reason"},
		"a long unknown member":     {body: `{"` + long + `":60}`, status: 400, kind: problems.InvalidRequest},
		"an owner, which none may":  {body: `{"ttl_seconds":60,"owner":"o"}`, status: 400, kind: problems.InvalidRequest, field: "owner"},
		"no body":                   {headers: []string{"Content-Type", "application/json"}, status: 400, kind: problems.InvalidRequest},
		"a byte order mark":         {body: "\ufeff" + aMinute, status: 400, kind: problems.InvalidRequest, detail: "byte order mark"},
		"no object":                 {body: `[]`, status: 400, kind: problems.InvalidRequest},
		"null":                      {body: `null`, status: 400, kind: problems.InvalidRequest},
		"two objects":               {body: aMinute + aMinute, status: 400, kind: problems.InvalidRequest},
		"a large body":              {body: strings.Repeat(" ", 20<<10) + aMinute, status: 413, kind: problems.BodyTooLarge},
		"no content type":           {body: aMinute, headers: []string{"Content-Type", ""}, status: 415, kind: problems.UnsupportedMediaType},
		"another content type":      {body: aMinute, headers: []string{"Content-Type", "text/plain"}, status: 415, kind: problems.UnsupportedMediaType},
		"a compressed body":         {body: aMinute, headers: []string{"Content-Encoding", "gzip"}, status: 415, kind: problems.UnsupportedMediaType},
		"an unknown resource":       {path: "/v1/flags/unknown/lock", body: aMinute, status: 400, kind: problems.InvalidRequest},
		"a key with a control byte": {path: "/v1/flags/a%00b/lock", body: aMinute, status: 400, kind: problems.InvalidRequest},
		"a key that is no text":     {path: "/v1/flags/a%FFb/lock", body: aMinute, status: 400, kind: problems.InvalidRequest},
		"a key with white space":    {path: "/v1/flags/a%20/lock", body: aMinute, status: 400, kind: problems.InvalidRequest},
		"an invisible key":          {path: "/v1/flags/a%E2%80%8B/lock", body: aMinute, status: 400, kind: problems.InvalidRequest},
		"a long key":                {path: "/v1/flags/" + strings.Repeat("k", 513) + "/lock", body: aMinute, status: 400, kind: problems.InvalidRequest},
	}
	for name, test := range cases {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			method, path := test.method, test.path
			if method == "" {
				method = http.MethodPost
			}
			if path == "" {
				path = flagLock
			}
			got := f.do(method, path, test.body, test.headers...).want(test.status, test.kind)
			problem := decode[problems.Document](got)
			if test.field != "" && (len(problem.Errors) != 1 || problem.Errors[0].Field != test.field || problem.Errors[0].In != "body") {
				t.Errorf("mistakes %+v, want one in %s", problem.Errors, test.field)
			}
			if len(problem.Detail) > 300 || !strings.Contains(problem.Detail, test.detail) {
				t.Errorf("told %q", problem.Detail)
			}
			if test.status == http.StatusMethodNotAllowed && got.header.Get("Allow") != "DELETE, GET, HEAD, POST, PUT" {
				t.Errorf("Allow %s", got.header.Get("Allow"))
			}
			if made := f.requests(); len(made) > 0 {
				t.Errorf("requests %v", made)
			}
		})
	}
}

// What is wrong with the key is wrong for the resource, too.
func TestAWriteOfNoResource(t *testing.T) {
	f := newFixture(t)
	f.edit = func(http.ResponseWriter, *http.Request) { t.Error("the flag was written") }
	f.do(http.MethodPatch, "/v1/flags/unknown", "{}").want(http.StatusBadRequest, problems.InvalidRequest)
	f.do(http.MethodPatch, "/v1/flags/a%00b", "{}").want(http.StatusBadRequest, problems.InvalidRequest)
	f.do(http.MethodPatch, "/v1/flags/a%20", "{}").want(http.StatusBadRequest, problems.InvalidRequest)
}

// An earlier release granted such keys.
func TestALockUnderAnInvisibleKeyIsOnlyKept(t *testing.T) {
	f := newFixture(t)
	const flag = "/v1/flags/a%E2%80%8B"
	f.do(http.MethodGet, flag+"/lock", "").want(http.StatusNotFound, problems.LockNotFound)
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		f.do(method, flag+"/lock", aMinute, "X-Lock-Token", "of-another-lock").want(http.StatusForbidden, problems.WrongToken)
	}
	f.do(http.MethodPatch, flag, "{}", "X-Lock-Token", "of-another-lock").want(http.StatusForbidden, problems.WrongToken)
}

func TestTheBoundOfTheServiceIsKept(t *testing.T) {
	f := newFixture(t, func(c *lockhttp.Config) { c.MaxTTL = time.Hour })
	f.backend.SetHooks(locktest.Hooks{Before: locktest.Failing(locktest.Acquire, &lock.InvalidError{})})
	f.do(http.MethodPost, flagLock, `{"ttl_seconds":3600}`).want(http.StatusBadRequest, problems.InvalidRequest)
}

func mayWait(c *lockhttp.Config) { c.MaxWait = 10 * time.Second }

func TestAClientMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, mayWait)
		first := f.acquire(flagLock, aMinute)
		refused := decode[problems.Document](f.do(http.MethodPost, flagLock, `{"ttl_seconds":60,"wait_seconds":10}`).want(http.StatusLocked, problems.LockHeld))
		if !strings.Contains(refused.Detail, "wait_seconds") {
			t.Errorf("told %s", refused.Detail)
		}
		f.do(http.MethodPost, flagLock, `{"ttl_seconds":60,"wait_seconds":10.1}`).want(http.StatusBadRequest, problems.InvalidRequest)
		granted := make(chan answer)
		go func() { granted <- f.do(http.MethodPost, flagLock, `{"ttl_seconds":60,"wait_seconds":10}`) }()
		pass(5 * time.Second)
		f.do(http.MethodDelete, flagLock, "", "X-Lock-Token", first).want(http.StatusNoContent)
		second := decode[lockhttp.Lock]((<-granted).want(http.StatusCreated))
		f.do(http.MethodDelete, flagLock, "", "X-Lock-Token", second.LockToken).want(http.StatusNoContent)
	})
}

func TestAClientThatLeavesLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, mayWait)
		first := f.acquire(flagLock, aMinute)
		leaving, leave := context.WithCancel(t.Context())
		done := make(chan answer)
		go func() { done <- f.doIn(leaving, http.MethodPost, flagLock, `{"ttl_seconds":60,"wait_seconds":10}`) }()
		synctest.Wait()
		if waiting := f.backend.Waiting("shop", key); waiting != 1 {
			t.Errorf("%d are waiting", waiting)
		}
		leave()
		(<-done).want(http.StatusServiceUnavailable, problems.Unavailable)
		f.do(http.MethodDelete, flagLock, "", "X-Lock-Token", first).want(http.StatusNoContent)
		f.wantFree()
		if f.log.Len() > 0 {
			t.Errorf("logged: %s", f.log)
		}
	})
}

// brokenWriter fails to send the body of an answer.
type brokenWriter struct{ http.ResponseWriter }

func (w brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// unflushed fails only when what was buffered is sent.
type unflushed struct{ http.ResponseWriter }

func (w unflushed) FlushError() error { return errors.New("broken pipe") }

func TestAnAcquireOfWhichNoClientKnowsLeaksNoLock(t *testing.T) {
	for name, serve := range map[string]func(f *fixture, w http.ResponseWriter){
		"the answer cannot be written": func(f *fixture, w http.ResponseWriter) {
			f.handler.ServeHTTP(brokenWriter{w}, newRequest(f.t.Context(), http.MethodPost, flagLock, aMinute))
		},
		"the answer cannot be flushed": func(f *fixture, w http.ResponseWriter) {
			f.handler.ServeHTTP(unflushed{w}, newRequest(f.t.Context(), http.MethodPost, flagLock, aMinute))
		},
		"the client has left": func(f *fixture, w http.ResponseWriter) {
			leaving, leave := context.WithCancel(f.t.Context())
			f.backend.SetHooks(locktest.Hooks{After: func(context.Context, locktest.Call) error { leave(); return nil }})
			f.handler.ServeHTTP(w, newRequest(leaving, http.MethodPost, flagLock, aMinute))
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			serve(f, httptest.NewRecorder())
			f.wantFree()
		})
	}
}

// A writer that cannot flush is no failure to send.
func TestAWriterWithoutFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.handler.ServeHTTP(struct{ http.ResponseWriter }{httptest.NewRecorder()}, newRequest(t.Context(), http.MethodPost, flagLock, aMinute))
		f.wantHeld()
	})
}

func TestErrorsOfPackageLock(t *testing.T) {
	cases := map[string]struct {
		err        error
		status     int
		kind       *problems.Kind
		retryAfter string
		isLogged   bool
	}{
		"unavailable":          {lock.ErrUnavailable, 503, problems.Unavailable, "1", true},
		"not authenticated":    {lock.ErrUnauthenticated, 503, problems.Unavailable, "1", true},
		"not allowed":          {lock.ErrForbidden, 503, problems.Unavailable, "1", true},
		"unexpected":           {errors.New("broken"), 503, problems.Unavailable, "1", true},
		"refused":              {&lock.RefusedError{Reason: "secret quota"}, 403, problems.RefusedByCluster, "", true},
		"held by an unknown":   {&lock.HeldError{}, 423, problems.LockHeld, "1", false},
		"held a moment longer": {&lock.HeldError{IsExpired: true}, 423, problems.LockHeld, "1", false},
	}
	for name, test := range cases {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			token := f.acquire("/v1/flags/other/lock", aMinute)
			f.backend.SetHooks(locktest.Hooks{Before: func(context.Context, locktest.Call) error { return fmt.Errorf("wrapped: %w", test.err) }})
			for _, got := range []answer{
				f.do(http.MethodPost, flagLock, aMinute), f.do(http.MethodPatch, flag, "{}"), f.do(http.MethodGet, flagLock, ""),
				f.do(http.MethodPatch, "/v1/flags/other", "{}", "X-Lock-Token", token),
				f.do(http.MethodPut, "/v1/flags/other/lock", aMinute, "X-Lock-Token", token),
				f.do(http.MethodDelete, "/v1/flags/other/lock", "", "X-Lock-Token", token),
			} {
				got.want(test.status, test.kind)
				if got.header.Get("Retry-After") != test.retryAfter || strings.Contains(got.body, "secret") {
					t.Errorf("Retry-After %q: %s", got.header.Get("Retry-After"), got.body)
				}
			}
			if isLogged := f.log.Len() > 0; isLogged != test.isLogged || strings.Contains(f.log.String(), token) {
				t.Errorf("logged: %s", f.log)
			}
		})
	}
}

// The options of a write are those of the service. Its client can correct nothing.
func TestInvalidRequestsForLocks(t *testing.T) {
	named := &lock.InvalidError{Problems: field.ErrorList{field.Invalid(field.NewPath("spec", "ttl"), "1m", "is too long")}}
	for name, test := range map[string]struct {
		err      error
		isLogged bool
	}{
		"with a name for what is wrong": {named, false},
		"without one":                   {lock.ErrInvalid, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			token := f.acquire("/v1/flags/other/lock", aMinute)
			f.backend.SetHooks(locktest.Hooks{Before: func(context.Context, locktest.Call) error { return fmt.Errorf("wrapped: %w", test.err) }})
			for _, got := range []answer{
				f.do(http.MethodPost, flagLock, aMinute),
				f.do(http.MethodPut, "/v1/flags/other/lock", aMinute, "X-Lock-Token", token),
			} {
				got.want(http.StatusBadRequest, problems.InvalidRequest)
				if strings.Contains(got.body, "shop") || strings.Contains(got.body, "wrapped") || strings.Contains(got.body, "spec.ttl") == test.isLogged {
					t.Errorf("told %s", got.body)
				}
			}
			if isLogged := f.log.Len() > 0; isLogged != test.isLogged {
				t.Errorf("logged: %s", f.log)
			}
			f.log.Reset()
			f.do(http.MethodPatch, flag, "{}").want(http.StatusInternalServerError, problems.InternalError)
			f.do(http.MethodPatch, "/v1/flags/other", "{}", "X-Lock-Token", token).want(http.StatusInternalServerError, problems.InternalError)
			if strings.Count(f.log.String(), lock.ErrInvalid.Error()) != 2 || strings.Contains(f.log.String(), token) {
				t.Errorf("logged: %s", f.log)
			}
		})
	}
}

// A client that sends a condition relies on it.
func TestConditionsThatAreNotHonouredAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		token := f.acquire(flagLock, aMinute)
		for _, test := range []struct {
			method, path, body, refused string
			headers                     []string
		}{
			{http.MethodPost, "/v1/flags/other/lock", aMinute, "If-Match", []string{"If-Match", `"1"`}},
			{http.MethodPost, "/v1/flags/other/lock", aMinute, "X-Lock-Token", []string{"X-Lock-Token", token}},
			{http.MethodPut, flagLock, aMinute, "If-Match", []string{"If-Match", "*", "X-Lock-Token", token}},
			{http.MethodDelete, flagLock, "", "If-Match", []string{"If-Match", `"1"`, "X-Lock-Token", token}},
		} {
			got := f.do(test.method, test.path, test.body, test.headers...).want(http.StatusBadRequest, problems.InvalidRequest)
			mistakes := decode[problems.Document](got).Errors
			if len(mistakes) != 1 || mistakes[0].In != "header" || mistakes[0].Field != test.refused || strings.Contains(got.body, token) {
				t.Errorf("%s: told %s", test.method, got.body)
			}
		}
		if made := f.requests(); len(made) > 0 {
			t.Errorf("requests %v", made)
		}
		f.do(http.MethodGet, flagLock, "", "If-Match", `"1"`, "X-Lock-Token", token).want(http.StatusOK)
	})
}

func TestConfig(t *testing.T) {
	client, keyOf := lock.NewClient(locktest.New(), "shop"), func(*http.Request) (string, error) { return "k", nil }
	for name, config := range map[string]lockhttp.Config{
		"no client":   {Key: keyOf},
		"no key":      {Client: client},
		"a short ttl": {Client: client, Key: keyOf, MaxTTL: time.Microsecond},
		"a long ttl":  {Client: client, Key: keyOf, MaxTTL: 1000 * time.Hour},
		"no wait":     {Client: client, Key: keyOf, MaxWait: -1},
		"no duration": {Client: client, Key: keyOf, MaxDuration: -1},
	} {
		if _, err := lockhttp.New(config); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
	if _, err := lockhttp.New(lockhttp.Config{Client: client, Key: keyOf}); err != nil {
		t.Error(err)
	}
}
