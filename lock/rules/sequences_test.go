package rules

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// history is one lock in an etcd, its past, and the guarantees for the callers of the rules. Each
// step uses its own clock, which differs from the others by at most the allowance.
type history struct {
	now       time.Time
	allowance time.Duration

	revision int64
	// stored is the object, or nil.
	stored *v1alpha1.Lock
	// holder is the owner of the last grant, until it is ended; then it is empty.
	holder string
	// until is when the holder no longer relies on the lock, in true time.
	until time.Time
	token int64
}

var (
	owners = rapid.SampledFrom([]string{"token-a", "token-b", "token-c"})
	ttls   = rapid.OneOf(
		rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, 24 * time.Hour, 24*time.Hour + 1, -1, time.Microsecond}),
		rapid.Map(rapid.IntRange(1, 60_000), func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }),
	)
	// steps of the clock are often small, so that edges are met. Stamps have
	// microseconds; less is not promised.
	steps = rapid.OneOf(
		rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute}),
		rapid.Map(rapid.IntRange(0, 90_000), func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }),
	)
)

// TestRandomSequences checks the invariants of the design over random sequences of operations.
func TestRandomSequences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{now: noon}
		h.allowance = rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "allowance")
		t.Repeat(map[string]func(*rapid.T){
			"":         h.check,
			"acquire":  h.acquire,
			"renew":    h.renew,
			"release":  h.release,
			"hand off": h.handOff,
			"force":    h.force,
			"reap":     h.reap,
			"label":    h.label,
			"wait":     func(t *rapid.T) { h.now = h.now.Add(steps.Draw(t, "for")) },
			"wait for the end": func(t *rapid.T) {
				if h.stored != nil {
					edge := h.stored.Spec.ExpireTime.Add(rapid.SampledFrom([]time.Duration{-time.Microsecond, 0, h.allowance}).Draw(t, "edge"))
					if edge.After(h.now) {
						h.now = edge
					}
				}
			},
		})
	})
}

// clock draws the reading of one replica's clock.
func (h *history) clock(t *rapid.T) time.Time {
	bound := int(h.allowance.Microseconds()) / 2
	off := rapid.IntRange(-bound, bound).Draw(t, "off")
	return h.now.Add(time.Duration(off) * time.Microsecond)
}

func (h *history) isLive() bool { return h.holder != "" && h.now.Before(h.until) }

// write stores an object as etcd does: with a revision that is larger than any before.
func (h *history) write(next *v1alpha1.Lock) {
	h.revision++
	h.stored = next.DeepCopy()
	h.stored.ResourceVersion = strconv.FormatInt(h.revision, 10)
	if h.stored.UID == "" {
		h.stored.UID = types.UID("uid-" + h.stored.ResourceVersion)
	}
}

func (h *history) remove() {
	h.revision++
	h.stored, h.holder = nil, ""
}

// granted records a grant of which the caller learns now.
func (h *history) granted(t *rapid.T, next *v1alpha1.Lock, request Acquisition) {
	if before := h.stored; before != nil && (next.UID != before.UID || next.ResourceVersion != before.ResourceVersion) {
		t.Fatalf("the grant is not conditional on what it replaces: %v", next.ObjectMeta)
	}
	if lives := next.Spec.ExpireTime.Sub(next.Spec.RenewTime.Time); lives != max(request.TTL, 0) && request.TTL != 0 {
		t.Fatalf("lives for %s, want %s", lives, request.TTL)
	}
	h.write(next)
	token, err := h.stored.FencingToken()
	if err != nil || token <= h.token {
		t.Fatalf("token %d after %d, error %v", token, h.token, err)
	}
	h.token, h.holder, h.until = token, request.Owner, h.now.Add(next.Spec.TTL.Duration)
}

// check is run after each step.
func (h *history) check(t *rapid.T) {
	switch {
	case h.stored == nil && h.isLive():
		t.Fatalf("%q relies on a lock that does not exist", h.holder)
	case h.stored == nil:
		return
	case h.isLive() && h.stored.Spec.Owner != h.holder:
		t.Fatalf("%q relies on a lock that is held under %q", h.holder, h.stored.Spec.Owner)
	}
	if token, err := h.stored.FencingToken(); err != nil || token != h.token {
		t.Fatalf("token %d, want %d; error %v", token, h.token, err)
	}
}

// attempt runs a step that must not change what is stored.
func (h *history) attempt(t *rapid.T, step func() error) error {
	before := h.stored.DeepCopy()
	err := step()
	if diff := cmp.Diff(before, h.stored); diff != "" {
		t.Fatalf("the stored object was changed in place (-before +after):\n%s", diff)
	}
	return err
}

func (h *history) draw(t *rapid.T) Acquisition {
	return Acquisition{
		Key: "billing:report", Owner: owners.Draw(t, "owner"), TTL: ttls.Draw(t, "ttl"),
		Holder: rapid.SampledFrom([]string{"alice", "bob"}).Draw(t, "holder"),
	}
}

func isGranted(ttl time.Duration) bool {
	return ttl == 0 || ttl >= time.Millisecond && ttl <= 24*time.Hour
}

func (h *history) acquire(t *rapid.T) {
	request, now := h.draw(t), h.clock(t)
	var next *v1alpha1.Lock
	err := h.attempt(t, func() (err error) {
		if h.stored == nil {
			next = Grant("default", request, DefaultLimits(), now)
		} else if next, err = TakeOver(h.stored, request, DefaultLimits(), now, h.allowance); err != nil {
			return err
		}
		_, err = request.Validate(DefaultLimits())
		return err
	})
	isFree := h.stored == nil || !now.Before(h.stored.Spec.ExpireTime.Add(h.allowance))
	switch {
	case err == nil && h.isLive():
		t.Fatalf("%q acquired what %q holds", request.Owner, h.holder)
	case err == nil:
		h.granted(t, next, request)
	case !isFree && !errors.Is(err, ErrHeld), isFree && !errors.Is(err, ErrInvalid), isFree && isGranted(request.TTL):
		t.Fatalf("refused: %v", err)
	}
}

func (h *history) renew(t *rapid.T) {
	owner, ttl, now := owners.Draw(t, "owner"), ttls.Draw(t, "ttl"), h.clock(t)
	var next *v1alpha1.Lock
	err := h.attempt(t, func() (err error) {
		if next, err = Renew(h.stored, Proof{Owner: owner}, ttl, now); err != nil {
			return err
		}
		return DefaultLimits().ValidateTTL(ttl)
	})
	if want := h.refusal(owner, now); want != nil {
		if !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
		return
	}
	if isGranted(ttl) != (err == nil) || err != nil && !errors.Is(err, ErrInvalid) {
		t.Fatalf("got %v for a ttl of %s", err, ttl)
	}
	if err != nil {
		return
	}
	if ttl == 0 {
		ttl = h.stored.Spec.TTL.Duration
	}
	stamp := v1alpha1.NewTimestamp(now)
	if !next.Spec.ExpireTime.Time.Equal(stamp.Add(ttl)) || next.Spec.TTL.Duration != ttl {
		t.Fatalf("renewed at %s for %s until %s", stamp, ttl, next.Spec.ExpireTime)
	}
	if !next.Spec.AcquireTime.Equal(h.stored.Spec.AcquireTime) || next.UID != h.stored.UID || next.ResourceVersion != h.stored.ResourceVersion {
		t.Fatal("the renewal is another grant")
	}
	h.write(next)
	h.until = h.now.Add(ttl)
}

// refusal returns why an owner may not renew or release at a time, or nil.
func (h *history) refusal(owner string, now time.Time) error {
	switch {
	case h.stored == nil:
		return ErrNotHeld
	case now.Before(h.stored.Spec.ExpireTime.Time) && owner != h.stored.Spec.Owner:
		return ErrOwnerMismatch
	case now.Before(h.stored.Spec.ExpireTime.Time):
		return nil
	case owner == h.stored.Spec.Owner:
		return ErrExpired
	}
	return ErrNotHeld
}

// let makes an owner release the lock, and reports whether it may.
func (h *history) let(t *rapid.T, owner string, now time.Time) bool {
	err := h.attempt(t, func() error { return Release(h.stored, Proof{Owner: owner}, now) })
	if want := h.refusal(owner, now); !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	if err == nil && h.isLive() && h.holder != owner {
		t.Fatalf("%q released what %q holds", owner, h.holder)
	}
	return err == nil
}

func (h *history) release(t *rapid.T) {
	if h.let(t, owners.Draw(t, "owner"), h.clock(t)) {
		h.remove()
	}
}

func (h *history) handOff(t *rapid.T) {
	now := h.clock(t)
	if !h.let(t, owners.Draw(t, "by"), now) {
		return
	}
	request := h.draw(t)
	var next *v1alpha1.Lock
	err := h.attempt(t, func() error {
		next = HandOff(h.stored, request, DefaultLimits(), now)
		_, err := request.Validate(DefaultLimits())
		return err
	})
	switch {
	case isGranted(request.TTL) != (err == nil):
		t.Fatalf("got %v for a ttl of %s", err, request.TTL)
	case err != nil:
		return
	case len(next.Labels) > 0:
		t.Fatal("the next holder got the labels of the former one")
	case next.Spec.AcquireTime.Equal(h.stored.Spec.AcquireTime):
		t.Fatal("a hand-off cannot be told from a renewal")
	}
	h.granted(t, next, request)
}

func (h *history) force(t *rapid.T) {
	now := h.clock(t)
	err := h.attempt(t, func() error { return ForceRelease(h.stored, Precondition{}, now) })
	isHeld := h.stored != nil && now.Before(h.stored.Spec.ExpireTime.Time)
	switch {
	case isHeld != (err == nil), err != nil && !errors.Is(err, ErrNotHeld):
		t.Fatalf("got %v", err)
	case err == nil:
		h.remove()
	}
}

func (h *history) reap(t *rapid.T) {
	if h.stored == nil {
		return
	}
	now := h.clock(t)
	err := h.attempt(t, func() error { return Reclaim(h.stored, now, h.allowance) })
	switch {
	case err == nil && h.isLive():
		t.Fatalf("reaped what %q holds", h.holder)
	case err == nil:
		h.remove()
	case !errors.Is(err, ErrHeld):
		t.Fatal(err)
	}
}

// label is an edit by a user who does not hold the lock, as it is admitted.
func (h *history) label(t *rapid.T) {
	if h.stored == nil {
		return
	}
	updated := h.stored.DeepCopy()
	metav1.SetMetaDataLabel(&updated.ObjectMeta, "edited-at", h.stored.ResourceVersion)
	var next *v1alpha1.Lock
	err := h.attempt(t, func() (err error) {
		next, _, err = AdmitUpdate(Change{Old: h.stored, Updated: updated, User: User{Name: "carol"}}, DefaultLimits(), h.clock(t), h.allowance)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	before, after := h.stored.Spec, next.Spec
	before.FencingToken, after.FencingToken = nil, nil
	if diff := cmp.Diff(before, after); diff != "" {
		t.Fatalf("an edit of labels changes the lock (-before +after):\n%s", diff)
	}
	h.write(next)
}
