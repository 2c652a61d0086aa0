package engine_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// A policy can repeat any field of the objects in its message.
func TestARefusalShowsNoOwnerToken(t *testing.T) {
	const former, next = "owner-of-the-former-holder", "owner-of-the-next"
	refuse := func(words string) func(string) error {
		return func(verb string) error {
			if verb != "update" && verb != "delete" {
				return nil // A create has no former holder.
			}
			return because(forbidden(policy+words), 422, metav1.StatusReasonInvalid)
		}
	}
	for _, wait := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			etcd := newEtcd()
			engine, log := startLogging(t, etcd)
			acquire(t, engine, by(former))
			etcd.inject(faults{before: refuse("not " + former)})
			released := engine.Release(t.Context(), "default", key, lock.Proof{Owner: former})
			forced := engine.ForceRelease(t.Context(), "default", key, "")
			_, renewed := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: former}, 0)
			for verb, err := range map[string]error{"release": released, "forced release": forced, "renewal": renewed} {
				if !errors.Is(err, lock.ErrRefused) || strings.Contains(err.Error(), former) {
					t.Errorf("%s: got %v", verb, err)
				}
			}
			etcd.inject(faults{before: refuse("neither " + former + " nor " + next)})
			pass(31 * time.Second)
			_, err := engine.Acquire(t.Context(), "default", waiting(next, wait))
			if !errors.Is(err, lock.ErrRefused) || strings.Contains(err.Error(), former) || strings.Contains(err.Error(), next) {
				t.Errorf("take-over: got %v", err)
			}
			if strings.Contains(log.String(), former) || strings.Contains(log.String(), next) {
				t.Errorf("logged:\n%s", log)
			}
		})
	}
}

// A lock with owners is not written over, but deleted first.
func TestARefusedReclaimShowsNoOwnerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const former = "owner-of-the-former-holder"
		etcd := newEtcd()
		engine := start(t, etcd)
		owned := mustAcquire(t, engine, former, time.Second)
		owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}}
		if _, err := etcd.Update(t.Context(), owned, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		etcd.inject(faults{before: func(verb string) error {
			if verb != "delete" {
				return nil
			}
			return because(forbidden(policy+"not "+former), 422, metav1.StatusReasonInvalid)
		}})
		_, err := engine.Acquire(t.Context(), "default", by("b"))
		if !errors.Is(err, lock.ErrRefused) || strings.Contains(err.Error(), former) {
			t.Errorf("got %v", err)
		}
	})
}

// A policy can print a field in quotes, or the object as JSON.
func TestARefusalShowsNoOwnerTokenInQuotes(t *testing.T) {
	const owner = `a"b\<c>`
	asJSON, err := json.Marshal(owner)
	if err != nil {
		t.Fatal(err)
	}
	for _, quoted := range []string{owner, strconv.Quote(owner), string(asJSON)} {
		synctest.Test(t, func(t *testing.T) {
			etcd := newEtcd()
			engine := start(t, etcd)
			mustAcquire(t, engine, owner, time.Hour)
			etcd.inject(faults{before: always(because(forbidden(policy+"not "+quoted), 422, metav1.StatusReasonInvalid))})
			_, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: owner}, 0)
			if !errors.Is(err, lock.ErrRefused) || strings.Contains(err.Error(), strings.Trim(quoted, `"`)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Whatever a request fails with, its text may repeat a field of the object, and a URL the selector.
func TestAFailedRequestShowsNoOwnerToken(t *testing.T) {
	const owner = "owner=of the lock"
	says := func(code int32, reason metav1.StatusReason) error {
		return because(denied(code, "not "+owner), code, reason)
	}
	failures := map[string]struct {
		err        error
		isAdmitted bool
		want       error
	}{
		"a webhook that is broken":   {err: says(500, metav1.StatusReasonInternalError), want: lock.ErrUnavailable},
		"too many requests":          {err: says(429, metav1.StatusReasonTooManyRequests), want: lock.ErrUnavailable},
		"a connection that was lost": {err: &url.Error{Op: "Put", URL: "/?fieldSelector=" + url.QueryEscape("spec.owner="+fields.EscapeValue(owner)), Err: io.EOF}, want: lock.ErrUnavailable},
		"the operator's rights":      {err: says(403, metav1.StatusReasonForbidden), want: lock.ErrUnavailable},
		"the program's rights":       {err: says(403, metav1.StatusReasonForbidden), isAdmitted: true, want: lock.ErrForbidden},
		"an invalid object":          {err: says(422, metav1.StatusReasonInvalid), want: lock.ErrInvalid},
		"anything else":              {err: says(405, metav1.StatusReasonMethodNotAllowed)},
	}
	for title, failure := range failures {
		bubbleOf(t, title, func(t *testing.T) {
			behind := newAdmitting()
			var objects engine.Objects = behind.etcd
			if failure.isAdmitted {
				objects = behind
			}
			var log strings.Builder
			engine := startWith(t, engine.Options{
				Objects:  func(string) engine.Objects { return objects },
				Informer: behind, Limits: rules.DefaultLimits(), IsAdmitted: failure.isAdmitted,
				Logger: funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{}),
			})
			acquire(t, engine, by(owner))
			pass(time.Second)
			unlessGet := func(verb string) error {
				if verb == "get" {
					return nil
				}
				return failure.err
			}
			failed := map[string]error{}
			fail := func(operation string, do func() error) {
				behind.inject(faults{before: unlessGet})
				failed[operation] = do()
				behind.inject(faults{})
			}
			fail("list", func() error {
				_, err := engine.List(t.Context(), "default", lock.Filter{Owner: owner})
				return err
			})
			fail("renewal", func() error {
				_, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: owner}, 0)
				return err
			})
			fail("forced release", func() error { return engine.ForceRelease(t.Context(), "default", key, "stuck") })
			fail("release", func() error {
				return engine.Release(t.Context(), "default", key, lock.Proof{Owner: owner})
			})
			pass(2 * time.Minute)
			fail("acquire", func() error {
				_, err := engine.Acquire(t.Context(), "default", by(owner))
				return err
			})
			for operation, err := range failed {
				if err == nil || failure.want != nil && !errors.Is(err, failure.want) ||
					strings.Contains(err.Error(), owner) || strings.Contains(err.Error(), url.QueryEscape(fields.EscapeValue(owner))) {
					t.Errorf("%s: got %v", operation, err)
				}
			}
			if text := log.String(); strings.Contains(text, owner) {
				t.Errorf("logged:\n%s", text)
			}
		})
	}
}

func TestAHandOffThatFailsShowsNoOwnerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const former, next = "owner-of-the-former", "owner-of-the-next"
		etcd := newEtcd()
		engine := start(t, etcd)
		acquire(t, engine, by(former))
		answers := queued(t, engine, waiting(next, time.Minute))
		etcd.inject(faults{before: func(verb string) error {
			if verb != "update" {
				return nil
			}
			return denied(500, former+" and "+next)
		}})
		err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: former})
		if !errors.Is(err, lock.ErrUnavailable) || strings.Contains(err.Error(), former) || strings.Contains(err.Error(), next) {
			t.Errorf("got %v", err)
		}
		etcd.inject(faults{})
		<-answers
	})
}
