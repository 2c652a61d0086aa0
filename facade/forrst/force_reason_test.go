package forrst_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestForceReleaseOfACallerWithANameNeedsAReason(t *testing.T) {
	var refusal error
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Access = &fakeAccess{
			who: func(*http.Request) (user.Info, error) {
				return &user.DefaultInfo{Name: "system:serviceaccount:default:root"}, nil
			},
			judge: func(user.Info, authorizationv1.ResourceAttributes) error { return refusal },
		}
	})
	f.hold("k", "o", time.Minute)
	const reason = "INVALID_ARGUMENTS /call/arguments/reason"
	for members, want := range map[string][]string{
		`"key":"k"`:                          {reason},
		`"key":"k","reason":null`:            {reason},
		`"key":"k","reason":""`:              {reason},
		`"key":"k","reason":" \t\u00a0\n"`:   {reason},
		`"key":"k","reason":7`:               {reason},
		`"key":"k","reason":"a","reason":""`: {reason},
		`"reason":""`:                        {"INVALID_ARGUMENTS /call/arguments/key", reason},
	} {
		for _, name := range aliases[forceRelease] {
			got := f.post(envelopeWith(name, arguments(members), ""))
			f.wantProblems(got, 400, want...)
		}
	}
	f.wantHeld("lock:k")
	got := f.post(envelopeWith(forceRelease, arguments(`"key":"k"`), ""))
	if message := got.Errors[0].Message; message != "reason must say why the lock is taken from its holder" {
		t.Errorf("message %q", message)
	}
	refusal = lock.ErrForbidden
	f.wantProblems(f.post(envelopeWith(forceRelease, arguments(`"key":"k"`), "")), 403, "FORBIDDEN")

	refusal = nil
	invalid := arguments(`"key":"k","reason":"a","fencing_token":0`)
	f.wantProblems(f.post(envelopeWith(forceRelease, invalid, "")), 400, "INVALID_ARGUMENTS /call/arguments/fencing_token")
	ofOther := arguments(`"key":"k","reason":"a","fencing_token":4000`)
	f.wantProblems(f.post(envelopeWith(forceRelease, ofOther, "")), 404, "LOCK_NOT_FOUND")
	f.wantHeld("lock:k")
	f.locks.Calls()
	if got := f.post(envelopeWith(forceRelease, arguments(`"key":"k","reason":"holder is gone"`), "")); got.status != 200 {
		t.Errorf("status %d, %s", got.status, got.body)
	}
	forced := []locktest.Call{{Verb: locktest.ForceRelease, Namespace: namespace, Key: "lock:k", Reason: "holder is gone"}}
	if diff := cmp.Diff(forced, f.locks.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
