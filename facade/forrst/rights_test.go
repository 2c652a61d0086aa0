package forrst_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// withRights makes a façade whose callers have a name, and the rights that judge does not refuse.
func withRights(t *testing.T, judge func(right authorizationv1.ResourceAttributes) error) (*fixture, *fakeAccess) {
	t.Helper()
	known := &fakeAccess{
		who: func(*http.Request) (user.Info, error) {
			return &user.DefaultInfo{Name: "system:serviceaccount:default:worker"}, nil
		},
		judge: func(_ user.Info, right authorizationv1.ResourceAttributes) error { return judge(right) },
	}
	return newFixtureWith(t, func(config *testfacade.Settings) { config.Access = known }), known
}

// Of each call about one lock the name of its object is asked for, by the key as it is locked.
func TestCallsAreAuthorizedForTheNameOfTheirLock(t *testing.T) {
	f, known := withRights(t, func(right authorizationv1.ResourceAttributes) error {
		if right.Name == "" {
			return fmt.Errorf("%w: to all", lock.ErrForbidden)
		}
		return nil
	})
	for _, test := range []struct{ verb, name, function, arguments, extension string }{
		{"create", "a--b", wire.Acquire, `"key":"a:b","owner":"o"`, ""},
		{"create", "a--b", wire.Renew, `"key":"a:b","owner":"o"`, ""},
		{"get", "a--b", wire.Status, `"key":"lock:a:b"`, ""},
		{"get", "a--b", "forrst.locks.status", `"key":"forrst_lock:a:b"`, ""},
		{"get", "a--b", wire.ListWaiters, `"key":"lock:a:b"`, ""},
		{"create", "a--b", wire.Release, `"key":"a:b","owner":"o"`, ""},
		{"create", "f--a", wire.Acquire, `"key":"a","owner":"o","scope":"function","function":"f"`, ""},
		{"create", "f--a", "forrst.locks.release", `"key":"f:a","owner":"o"`, ""},
		{"create", "a", wire.Acquire, `"key":"a","owner":"o"`, ""},
		{"force-release", "a", forceRelease, `"key":"a","reason":"r"`, ""},
		{"create", "k", ping, ``, `{"key":"k","scope":"global",` + ttl + `}`},
		{"create", "urn--cline--forrst--fn--ping--k", ping, ``, `{"key":"k",` + ttl + `}`},
	} {
		extension := ""
		if test.extension != "" {
			extension = locked(test.extension)
		}
		if got := f.post(envelopeWith(test.function, arguments(test.arguments), extension)); got.status != 200 {
			t.Errorf("%s %s: status %d: %s", test.function, test.arguments, got.status, got.body)
		}
		want := []string{test.verb + " default", test.verb + " default/" + test.name}
		if diff := cmp.Diff(want, known.asked); diff != "" {
			t.Errorf("%s %s: asked (-want +got):\n%s", test.function, test.arguments, diff)
		}
		known.asked = nil
	}
	// A scope that cannot be read names no function, so that its refusal is recorded under the name that a global one has.
	f.wantProblems(f.post(envelopeWith(ping, arguments(``), locked(`{"key":"k","scope":5,`+ttl+`}`))), 400, "INVALID_ARGUMENTS /extensions/0/options/scope")
	if diff := cmp.Diff([]string{"create default", "create default/k"}, known.asked); diff != "" {
		t.Errorf("with a scope that is no text: asked (-want +got):\n%s", diff)
	}
	f.wantProblems(f.post(envelopeWith(wire.List, arguments(``), "")), 403, "FORBIDDEN")
	// Who waits for any lock is told to those alone that may list all.
	known.asked = nil
	f.wantProblems(f.post(envelopeWith(wire.ListWaiters, arguments(``), "")), 403, "FORBIDDEN")
	if diff := cmp.Diff([]string{"list default"}, known.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestACallerWithARightToOneLockHasNoneToAnother(t *testing.T) {
	f, _ := withRights(t, func(right authorizationv1.ResourceAttributes) error {
		if right.Name != "mine" {
			return lock.ErrForbidden
		}
		return nil
	})
	for _, function := range []string{wire.Acquire, wire.Status, wire.Renew, wire.Release, forceRelease} {
		for _, members := range []string{`"key":"other","owner":"o","reason":"r"`, `"owner":"o","reason":"r"`, `"key":7`, `"key":"mine","key":"other"`, `"key":"mine:"`} {
			f.wantProblems(f.post(envelopeWith(function, arguments(members), "")), 403, "FORBIDDEN")
		}
	}
	for _, options := range []string{`{"key":"mine",` + ttl + `}`, `{"key":"other","scope":"global",` + ttl + `}`} {
		f.wantProblems(f.post(envelopeWith(ping, "", locked(options))), 403, "FORBIDDEN")
	}
	if left := f.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	f.wantProblems(f.post(envelopeWith(wire.Acquire, arguments(`"key":"mine","ttl":7`), "")), 400, "INVALID_ARGUMENTS /call/arguments/ttl")
}
