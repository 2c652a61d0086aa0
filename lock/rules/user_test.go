package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestAUserThatWasCreatedAgainIsAnotherHolder(t *testing.T) {
	for name, test := range map[string]struct {
		user        User
		holder, uid string
		want        bool
	}{
		"the same":                           {User{"alice", "1"}, "alice", "1", true},
		"the same name under another UID":    {User{"alice", "2"}, "alice", "1", false},
		"another name under the same UID":    {User{"bob", "1"}, "alice", "1", false},
		"a lock of before UIDs were kept":    {User{"alice", "2"}, "alice", "", true},
		"a user without a UID":               {User{"alice", ""}, "alice", "1", true},
		"neither has a UID":                  {User{"alice", ""}, "alice", "", true},
		"another user of a lock without one": {User{"bob", "1"}, "alice", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			held := &v1alpha1.Lock{Spec: v1alpha1.LockSpec{Holder: test.holder, HolderUID: test.uid, Owner: "o"}}
			if got := test.user.Holds(held); got != test.want {
				t.Errorf("holds: %t", got)
			}
			if got := (Proof{Owner: "o", Holder: test.user.Name, HolderUID: test.user.UID}).entitlesTo(held); got != test.want {
				t.Errorf("its proof entitles: %t", got)
			}
		})
	}
	if !(Proof{Owner: "o"}).entitlesTo(&v1alpha1.Lock{Spec: v1alpha1.LockSpec{Holder: "alice", HolderUID: "1", Owner: "o"}}) {
		t.Error("the owner token does not suffice where callers are not authenticated")
	}
}

func TestGrantsKeepTheUIDOfTheirHolder(t *testing.T) {
	granted := Grant("default", Acquisition{Key: "k", Owner: "o", Holder: "alice", HolderUID: "1"}, DefaultLimits(), noon)
	if granted.Spec.HolderUID != "1" {
		t.Errorf("got %q", granted.Spec.HolderUID)
	}
	next := HandOff(granted, Acquisition{Key: "k", Owner: "p", Holder: "bob"}, DefaultLimits(), noon)
	if next.Spec.Holder != "bob" || next.Spec.HolderUID != "" {
		t.Errorf("the next holder has %q", next.Spec.HolderUID)
	}
	granted.ResourceVersion = "1"
	renewed, err := Renew(granted, Proof{Owner: "o", Holder: "alice", HolderUID: "1"}, 0, noon)
	if err != nil || renewed.Spec.HolderUID != "1" {
		t.Errorf("after a renewal: %v, %v", renewed, err)
	}
	if _, err := Renew(granted, Proof{Owner: "o", Holder: "alice", HolderUID: "2"}, 0, noon); !errors.Is(err, ErrOwnerMismatch) {
		t.Errorf("the next account of that name: %v", err)
	}
	long := Grant("default", Acquisition{Key: "k", Owner: "o", Holder: "alice", HolderUID: strings.Repeat("u", MaxHolderUIDBytes+1)}, DefaultLimits(), noon)
	if long.Spec.HolderUID != "" {
		t.Errorf("keeps a UID of %d bytes, which the schema refuses", len(long.Spec.HolderUID))
	}
}

// A service account that was deleted and created again inherits nothing, and forces a release like any other user.
func TestAdmissionTellsAccountsOfOneNameApart(t *testing.T) {
	former, later := User{"alice", "1"}, User{"alice", "2"}
	old := heldBy(t, former)
	changed := old.DeepCopy()
	changed.Spec.Reason = "mine now"
	if _, _, err := AdmitUpdate(Change{Old: old, Updated: changed, User: later}, DefaultLimits(), noon, 0); !errors.Is(err, ErrHeld) {
		t.Errorf("a change by the later account: %v", err)
	}
	updated, _, err := AdmitUpdate(Change{Old: old, Updated: changed, User: former}, DefaultLimits(), noon, 0)
	if err != nil || updated.Spec.HolderUID != "1" {
		t.Errorf("a change by the holder: %v, %v", updated, err)
	}
	for _, requested := range []string{v1alpha1.RequestRenewal, v1alpha1.RequestHandOff} {
		asking := old.DeepCopy()
		asking.Annotations = map[string]string{v1alpha1.RequestAnnotation: requested}
		asking.Spec.Owner = map[string]string{v1alpha1.RequestRenewal: old.Spec.Owner, v1alpha1.RequestHandOff: "next"}[requested]
		if _, _, err := AdmitUpdate(Change{Old: old, Updated: asking, User: later}, DefaultLimits(), noon, 0); !errors.Is(err, ErrHeld) {
			t.Errorf("a requested %s by the later account: %v", requested, err)
		}
	}
	if MayEnd(old, later) || !MayEnd(old, former) {
		t.Error("the later account may end the lock, or the holder may not")
	}
	withReason := old.DeepCopy()
	withReason.Annotations = map[string]string{v1alpha1.ForceReleaseReasonAnnotation: "r"}
	change := Change{Old: old, Updated: withReason, User: later}
	if !change.NeedsForce(withReason, noon, 0) {
		t.Error("the later account needs no right to force a release")
	}
}

// heldBy is a lock that admission has granted to the user.
func heldBy(t *testing.T, user User) *v1alpha1.Lock {
	t.Helper()
	held, _, err := AdmitCreate(manifest(), user, DefaultLimits(), noon)
	if err != nil || held.Spec.HolderUID != user.UID {
		t.Fatalf("got %q, %v", held.Spec.HolderUID, err)
	}
	held.ResourceVersion = "7"
	return held
}

func TestTheUIDOfTheHolderIsAStamp(t *testing.T) {
	former, later := User{"alice", "1"}, User{"alice", "2"}
	old := heldBy(t, former)
	forged := old.DeepCopy()
	forged.Spec.HolderUID = "2"
	if _, _, err := AdmitUpdate(Change{Old: old, Updated: forged, User: former}, DefaultLimits(), noon, 0); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "spec.holderUID") {
		t.Errorf("a change of the UID: %v", err)
	}
	if _, _, err := AdmitCreate(forged, later, DefaultLimits(), noon); !errors.Is(err, ErrInvalid) {
		t.Errorf("a new lock with a UID: %v", err)
	}
	left := old.DeepCopy()
	left.Spec.HolderUID, left.Spec.Reason = "", "left out"
	if kept, _, err := AdmitUpdate(Change{Old: old, Updated: left, User: former}, DefaultLimits(), noon, 0); err != nil || kept.Spec.HolderUID != "1" {
		t.Errorf("a manifest that leaves the UID out: %v, %v", kept, err)
	}
}

func TestALaterAccountTakesAnExpiredLockOverLikeAnother(t *testing.T) {
	later := User{"alice", "2"}
	old := heldBy(t, User{"alice", "1"})
	changed := old.DeepCopy()
	changed.Spec.Reason = "mine now"
	expired := noon.Add(25 * time.Hour)
	if _, _, err := AdmitUpdate(Change{Old: old, Updated: changed, User: later}, DefaultLimits(), expired, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("a take-over under the owner token of the former account: %v", err)
	}
	changed.Spec.Owner = "another"
	taken, _, err := AdmitUpdate(Change{Old: old, Updated: changed, User: later}, DefaultLimits(), expired, 0)
	if err != nil || taken.Spec.HolderUID != "2" {
		t.Errorf("a take-over by the later account: %v, %v", taken, err)
	}
}
