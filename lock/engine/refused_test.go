package engine_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// forbidden is a refusal by the authorizer or an admission plugin of the API server.
func forbidden(reason string) *apierrors.StatusError {
	return apierrors.NewForbidden(v1alpha1.Resource("locks"), name, errors.New(reason))
}

// denied is a refusal by an admission webhook.
func denied(code int32, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: metav1.StatusReasonUnknown, Message: message}}
}

// because gives a refusal another code and reason, as a policy can.
func because(err *apierrors.StatusError, code int32, reason metav1.StatusReason) error {
	err.ErrStatus.Code, err.ErrStatus.Reason = code, reason
	return err
}

const policy = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "

func refusals() map[string]struct {
	err  error
	want string
} {
	terminating := forbidden("unable to create new content in namespace default because it is being terminated")
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
	const rights = `User "system:serviceaccount:forrst-system:lock-operator" cannot create resource "locks" in API group "forrst.dev" in the namespace "default"`
	return map[string]struct {
		err  error
		want string // The reason of a refusal, or empty if the caller is told that the service is unavailable.
	}{
		"a quota":                  {forbidden("exceeded quota: q, requested: count/locks.forrst.dev=1, used: 1, limited: 1"), "exceeded quota: q, requested: count/locks.forrst.dev=1, used: 1, limited: 1"},
		"no quota":                 {forbidden("insufficient quota to consume: count/locks.forrst.dev"), "insufficient quota to consume: count/locks.forrst.dev"},
		"a namespace that ends":    {terminating, "unable to create new content in namespace default because it is being terminated"},
		"a policy":                 {because(forbidden(policy+"no"), 422, metav1.StatusReasonInvalid), policy + "no"},
		"a policy that forbids":    {forbidden(policy + "no"), policy + "no"},
		"a policy that says 401":   {because(forbidden(policy+"no"), 401, metav1.StatusReasonUnauthorized), policy + "no"},
		"a policy on rights":       {forbidden(policy + rights), policy + rights},
		"a mutating policy":        {forbidden("policy 'm' with binding 'b' denied request: no"), "policy 'm' with binding 'b' denied request: no"},
		"a webhook":                {denied(400, `admission webhook "x.example.com" denied the request: no`), `admission webhook "x.example.com" denied the request: no`},
		"a webhook without words":  {denied(403, `admission webhook "x.example.com" denied the request without explanation`), `admission webhook "x.example.com" denied the request without explanation`},
		"a webhook that says 409":  {denied(409, `admission webhook "x.example.com" denied the request: no`), `admission webhook "x.example.com" denied the request: no`},
		"a webhook that conflicts": {because(denied(409, `admission webhook "x.example.com" denied the request: no`), 409, metav1.StatusReasonConflict), `admission webhook "x.example.com" denied the request: no`},
		"a webhook that exists":    {because(denied(409, `admission webhook "x.example.com" denied the request: no`), 409, metav1.StatusReasonAlreadyExists), `admission webhook "x.example.com" denied the request: no`},
		"a webhook that says 404":  {because(denied(404, `admission webhook "x.example.com" denied the request: no`), 404, metav1.StatusReasonNotFound), `admission webhook "x.example.com" denied the request: no`},
		"missing rights":           {forbidden(rights), ""},
		"an API server that began": {forbidden("not yet ready to handle request"), ""},
		"a quota without a count":  {forbidden("status unknown for quota: q, resources: count/locks.forrst.dev"), ""},
		"a webhook that is broken": {denied(500, `admission webhook "x.example.com" denied the request: no`), ""},
		"no credentials":           {apierrors.NewUnauthorized("Unauthorized"), ""},
		"too many requests":        {denied(429, `admission webhook "x.example.com" denied the request: later`), ""},
	}
}

// startLogging returns an engine and its log.
func startLogging(t *testing.T, etcd *etcd) (*engine.Engine, *strings.Builder) {
	t.Helper()
	var log strings.Builder
	return startWith(t, engine.Options{
		Objects: etcd.locks, Informer: etcd, Limits: rules.DefaultLimits(),
		Logger: funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{}),
	}), &log
}

func TestARefusalIsNoOutage(t *testing.T) {
	for title, test := range refusals() {
		for _, wait := range []time.Duration{0, time.Minute} {
			bubbleOf(t, title+" within "+wait.String(), func(t *testing.T) {
				etcd := newEtcd()
				engine, log := startLogging(t, etcd)
				etcd.inject(faults{before: failing("create", test.err)})
				began := time.Now()
				_, err := engine.Acquire(t.Context(), "default", waiting("owner-a", wait))
				refused, isRefused := errors.AsType[*lock.RefusedError](err)
				if test.want == "" {
					if isRefused || !errors.Is(err, lock.ErrUnavailable) {
						t.Errorf("got %v, want ErrUnavailable", err)
					}
					return
				}
				if !isRefused || refused.Reason != test.want || !errors.Is(err, lock.ErrRefused) || errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("got %v, want the reason %q", err, test.want)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("told after %s", took)
				}
				// Again and again: each is one request, and all are one line in the log.
				_, _ = engine.Acquire(t.Context(), "default", waiting("owner-b", wait))
				pass(time.Minute)
				etcd.mustMake(t, "create", "create")
				if lines := strings.Count(log.String(), "\n"); lines != 1 {
					t.Errorf("%d lines in the log:\n%s", lines, log)
				}
			})
		}
	}
}

func TestMissingRightsAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, log := startLogging(t, etcd)
		etcd.inject(faults{before: func(string) error {
			return forbidden(`User "u" cannot create resource "locks" in API group "forrst.dev" in the namespace "default"`)
		}})
		for _, wait := range []time.Duration{0, time.Minute, 0, time.Minute} {
			if _, err := engine.Acquire(t.Context(), "default", waiting("a", wait)); !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("%d lines in the log:\n%s", lines, log)
		}
		pass(10 * time.Minute)
		_, _ = engine.Acquire(t.Context(), "default", by("a"))
		if lines := strings.Count(log.String(), "\n"); lines != 2 {
			t.Errorf("%d lines in the log after a while:\n%s", lines, log)
		}
	})
}

// A webhook may deny with the code of a lost race or of an object that is gone, which are tried again.
func TestARefusalWithTheCodeOfALostRace(t *testing.T) {
	for code, reason := range map[int32]metav1.StatusReason{409: metav1.StatusReasonConflict, 404: metav1.StatusReasonNotFound} {
		no := because(denied(code, `admission webhook "x.example.com" denied the request: no`), code, reason)
		renew := func(t *testing.T, engine *engine.Engine) error {
			t.Helper()
			_, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
			return err
		}
		operations := map[string]func(*testing.T, *engine.Engine) error{
			"release": func(t *testing.T, engine *engine.Engine) error {
				t.Helper()
				return engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"})
			},
			"a release through another replica": func(t *testing.T, engine *engine.Engine) error {
				t.Helper()
				return engine.Release(t.Context(), "default", key, lock.Proof{Owner: "of another replica"})
			},
			"forced release": func(t *testing.T, engine *engine.Engine) error {
				t.Helper()
				return engine.ForceRelease(t.Context(), "default", key, "")
			},
			"renewal": renew,
			"take-over": func(t *testing.T, engine *engine.Engine) error {
				t.Helper()
				pass(2 * time.Minute)
				_, err := engine.Acquire(t.Context(), "default", by("b"))
				return err
			},
		}
		for title, operation := range operations {
			bubbleOf(t, title+" and "+string(reason), func(t *testing.T) {
				etcd := newEtcd()
				engine, other := start(t, etcd), start(t, etcd)
				if title == "a release through another replica" {
					mustAcquire(t, other, "of another replica", time.Minute)
				} else {
					mustAcquire(t, engine, "a", time.Minute)
				}
				etcd.inject(faults{before: func(verb string) error {
					if verb == "get" {
						return nil
					}
					return no
				}})
				etcd.made()
				if err := operation(t, engine); !errors.Is(err, lock.ErrRefused) {
					t.Errorf("got %v, want ErrRefused", err)
				}
				if made := etcd.made(); len(made) > 2 {
					t.Errorf("made %v", made)
				}
			})
		}
	}
}

// The caller was told that nothing was done, and goes on with its lock.
func TestARefusedReleaseIsNotCarriedOutLater(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		mustAcquire(t, engine, "a", time.Hour)
		etcd.inject(faults{before: always(because(forbidden(policy+"no"), 422, metav1.StatusReasonInvalid))})
		if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrRefused) {
			t.Errorf("got %v, want ErrRefused", err)
		}
		etcd.made()
		pass(10 * time.Second)
		if made := etcd.made(); len(made) > 0 {
			t.Errorf("made %v after the refusal", made)
		}
		etcd.inject(faults{})
		pass(time.Minute)
		if owner := etcd.owner(name); owner != "a" {
			t.Errorf("held by %q after a release that was refused", owner)
		}
		release(t, engine, "a")
		if made := etcd.made(); len(made) != 1 {
			t.Errorf("made %v for the release that is permitted, want one delete", made)
		}
	})
}

// A webhook may refuse the waiter, with any code; the holder may release its lock all the same.
func TestAHandOffThatIsRefusedReleasesTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		answers := queued(t, engine, waiting("b", time.Minute))
		no := denied(400, `admission webhook "x.example.com" denied the request: no`)
		etcd.inject(faults{before: func(verb string) error {
			if verb == "update" || verb == "create" {
				return no
			}
			return nil
		}})
		release(t, engine, "a")
		if got := <-answers; !errors.Is(got.err, lock.ErrRefused) {
			t.Errorf("the waiter got %v", got.err)
		}
		etcd.mustBeFree(t)
	})
}

// The quota controller counts a delete some time after it.
func TestAWaiterOutlastsAQuotaThatLags(t *testing.T) {
	exceeded := forbidden("exceeded quota: q, requested: count/locks.forrst.dev=1, used: 1, limited: 1")
	cases := map[string]struct {
		lag  time.Duration
		want error
	}{
		"for a moment": {lag: 2 * time.Second},
		"for good":     {lag: time.Hour, want: lock.ErrRefused},
	}
	for title, test := range cases {
		bubbleOf(t, title, func(t *testing.T) {
			etcd := newEtcd()
			holding, other := start(t, etcd), start(t, etcd)
			acquire(t, holding, by("a"))
			answers := make(chan answer, 2)
			queueUp(t.Context(), t, other, waiting("b", time.Minute), answers)
			queueUp(t.Context(), t, other, waiting("c", time.Minute), answers)
			pass(10 * time.Second)
			released := time.Now()
			etcd.inject(faults{before: func(verb string) error {
				if verb == "create" && time.Since(released) < test.lag {
					return exceeded
				}
				return nil
			}})
			release(t, holding, "a")
			etcd.made()
			got := <-answers
			took := time.Since(released)
			if !errors.Is(got.err, test.want) || (got.owner != "b" && test.want == nil) || took > 2*test.lag || took > 8*time.Second {
				t.Errorf("%s got %v after %v, want %v", got.owner, got.err, took, test.want)
			}
			if made := len(etcd.made()); made > 20 {
				t.Errorf("%d requests", made)
			}
			if test.want != nil {
				if got = <-answers; !errors.Is(got.err, test.want) || time.Since(released) > took {
					t.Errorf("the next got %v after %v", got.err, time.Since(released))
				}
			}
		})
	}
}

// What a program may not do, and what the operator's own webhook refuses, is about the caller.
func TestWhatAProgramIsRefused(t *testing.T) {
	cases := map[string]struct {
		err  error
		want error
	}{
		"a right":                     {forbidden(`User "u" cannot create resource "locks" in API group "forrst.dev" in the namespace "default"`), lock.ErrForbidden},
		"a right, by our webhook":     {denied(403, `admission webhook "lock.forrst.dev" denied the request: no`), lock.ErrForbidden},
		"a quota":                     {forbidden("exceeded quota: q, requested: count/locks.forrst.dev=1, used: 1, limited: 1"), lock.ErrRefused},
		"a policy":                    {because(forbidden(policy+"no"), 422, metav1.StatusReasonInvalid), lock.ErrRefused},
		"something, by our webhook":   {because(denied(422, `admission webhook "lock.forrst.dev" denied the request: no`), 422, metav1.StatusReasonInvalid), lock.ErrInvalid},
		"something, by another one's": {denied(422, `admission webhook "lock.forrst.dev.example.com" denied the request: no`), lock.ErrRefused},
	}
	for title, test := range cases {
		bubbleOf(t, title, func(t *testing.T) {
			etcd := newEtcd()
			etcd.inject(faults{before: always(test.err)})
			engine := startWith(t, engine.Options{Objects: etcd.locks, Limits: rules.DefaultLimits(), IsAdmitted: true})
			_, err := engine.Acquire(t.Context(), "default", by("a"))
			for _, known := range []error{lock.ErrForbidden, lock.ErrRefused, lock.ErrInvalid, lock.ErrUnavailable} {
				if errors.Is(err, known) != errors.Is(test.want, known) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			}
		})
	}
}

func TestNameOfTheOperatorsWebhook(t *testing.T) {
	manifest, err := os.ReadFile("../../config/webhook/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manifest), "name: lock.forrst.dev\n") {
		t.Error("the engine tells the operator's webhook from others by another name")
	}
}
