package forrst_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// oldLock is a backend with one lock, which an earlier release has granted under a key that is refused now.
type oldLock struct {
	lock.Backend

	stored *v1alpha1.Lock
	now    func() time.Time
}

// of returns the lock if it has the key.
func (o *oldLock) of(key v1alpha1.FullKey) *v1alpha1.Lock {
	if o.stored == nil || o.stored.Spec.FullKey() != key {
		return nil
	}
	return o.stored
}

func (o *oldLock) Get(_ context.Context, _ string, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	if held := o.of(key); held != nil {
		return held.DeepCopy(), nil
	}
	return nil, lock.ErrNotHeld
}

func (o *oldLock) Renew(_ context.Context, _ string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	next, err := rules.Renew(o.of(key), proof, ttl, o.now())
	if err != nil {
		return nil, err
	}
	o.stored = next
	return next.DeepCopy(), nil
}

func (o *oldLock) Release(_ context.Context, _ string, key v1alpha1.FullKey, proof lock.Proof) error {
	err := rules.Release(o.of(key), proof, o.now())
	if err == nil {
		o.stored = nil
	}
	return err
}

func (o *oldLock) ForceRelease(_ context.Context, _ string, key v1alpha1.FullKey, _ string, preconditions ...lock.Precondition) error {
	err := rules.ForceRelease(o.of(key), lock.PreconditionOf(preconditions), o.now())
	if err == nil {
		o.stored = nil
	}
	return err
}

// Nobody can see how the key differs, but its holder has it, and copies it from a list.
func TestALockUnderAnInvisibleKeyIsOnlyKept(t *testing.T) {
	for title, key := range map[string]string{
		"an invisible character": "de\u200bploy", "a byte order mark": "\ufeffdeploy", "white space at the end": "deploy ", "a variation selector": "\u2764\ufe0f",
	} {
		t.Run(title, func(t *testing.T) {
			quoted, err := json.Marshal("lock:" + key)
			if err != nil {
				t.Fatal(err)
			}
			named := fmt.Sprintf(`"key":%s`, quoted)
			proof := named + `,"owner":"o"`
			ended := map[string]struct{ function, arguments, result string }{
				"the function of the protocol": {release, proof, `"released":true`},
				"that of the operator":         {wire.Release, proof + `,"fencing_token":1`, `"released":true`},
				"force":                        {forceRelease, named, `"forced":true`},
			}
			for name, end := range ended {
				t.Run(name, func(t *testing.T) {
					stored := &oldLock{}
					f := newFixtureWith(t, func(config *testfacade.Settings) { config.Locks, stored.now = stored, config.Clock.Now })
					stored.Backend, stored.stored = f.locks, rules.Grant(namespace, rules.Acquisition{
						Key: key, Owner: "o", Holder: "alice", TTL: time.Minute,
					}, rules.DefaultLimits(), f.clock.Now())
					stored.stored.ResourceVersion = "1"
					want := func(function, members, want string) {
						t.Helper()
						if got := f.post(envelopeWith(function, arguments(members), "")); got.status != 200 || !strings.Contains(string(got.Result), want) {
							t.Errorf("%s: status %d, want %s: %s", function, got.status, want, got.body)
						}
					}
					want(wire.Status, named, `"locked":true`)
					want(wire.Renew, proof+`,"ttl":{"value":1,"unit":"hour"},"fencing_token":1`, `"renewed":true`)
					if stored.stored.Spec.TTL.Duration != time.Hour {
						t.Errorf("the ttl is %s", stored.stored.Spec.TTL.Duration)
					}
					want(end.function, end.arguments, end.result)
					if stored.stored != nil {
						t.Error("it is still held")
					}
					key := strings.Replace(named, "lock:", "", 1)
					f.wantProblems(f.post(envelopeWith(wire.Acquire, arguments(key), "")), 400, "INVALID_ARGUMENTS /call/arguments/key")
					if made := f.requests(); len(made) > 0 {
						t.Errorf("asked for %+v", made)
					}
				})
			}
		})
	}
}
