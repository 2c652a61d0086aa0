package lock

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Resume takes up a lock that another call, process or replica has acquired, and renews it until
// [Held.Release] or [Held.Detach]. It renews the lock at once, for the ttl of [WithTTL] in the call or
// else the one that the lock has, so the Held begins with a whole ttl. If another grant than that of
// the proof holds the lock, Resume changes nothing. As for [Client.Acquire], the end of ctx ends
// [Held.Context], but never the lock.
//
// The owner of the proof is required, and the fencing token should be given: of the [Held] that was
// acquired they are [Held.Owner] and [Held.FencingToken]. Without a fencing token the proof is of
// whichever grant the owner token has.
//
// Several processes may hold one grant at a time; among them the lock excludes nothing. They must use one
// ttl: a renewal for a shorter time ends the lock before the [Held.Deadline] of the others.
//
// If Resume fails, the lock is as it was, or has been renewed, up to twice. The error matches
//
//   - [ErrNotHeld] if the grant has ended; [ErrExpired] too if that is known to be by its ttl,
//   - [ErrOwnerMismatch] if the lock is held under another owner token,
//   - [ErrStale] if the lock is not in the version of the proof,
//   - [ErrDoubleLock], [ErrInvalid], [ErrRefused], [ErrUnavailable], or the error of ctx, as for
//     Acquire,
//   - [errors.ErrUnsupported] if the backend does not know the limits of the proof.
func (c *Client) Resume(ctx context.Context, key string, proof Proof, options ...Option) (*Held, error) {
	// The default of the client is for locks that it acquires.
	settings, err := c.settings("Resume", ofHold, key, append([]Option{WithTTL(0)}, options...))
	if err != nil {
		return nil, err
	}
	settings.isOrderChecked = false // It waits for nobody.
	fullKey := settings.request.FullKey()
	if err := c.checkContext(ctx, settings); err != nil {
		return nil, err
	}
	held, err := c.resume(ctx, settings, fullKey, proof)
	if err != nil {
		return nil, failed("resume", fullKey, c.namespace, err)
	}
	return held, nil
}

func (c *Client) resume(ctx context.Context, settings settings, key v1alpha1.FullKey, proof Proof) (*Held, error) {
	if err := v1alpha1.ValidateOwner(proof.Owner); err != nil {
		return nil, &InvalidError{Problems: field.ErrorList{field.Invalid(field.NewPath("owner"), field.OmitValueType{}, err.Error())}}
	}
	sent := settings.clock.Now()
	renewed, err := c.backend.Renew(ctx, c.namespace, key, proof, settings.request.TTL)
	if err != nil {
		return nil, err
	}
	settings.resumed = &proof
	return c.hold(ctx, settings, renewed, sent)
}

// Release ends a lock that another call, process or replica has acquired, if the proof permits it; see
// [Client.Resume]. It completes even if ctx ends meanwhile. The error matches [ErrNotHeld],
// [ErrExpired], [ErrOwnerMismatch], [ErrStale], [ErrRefused], [ErrUnavailable] or
// [errors.ErrUnsupported]. After ErrUnavailable the lock may be released already; with a fencing
// token in the proof, releasing again is safe.
func (c *Client) Release(ctx context.Context, key string, proof Proof, options ...Option) error {
	settings, err := c.settings("Release", ofRelease, key, options)
	if err != nil {
		return err
	}
	fullKey := settings.request.FullKey()
	if err := c.release(ctx, fullKey, proof, settings.releaseTimeout); err != nil {
		return failed("release", fullKey, c.namespace, err)
	}
	return nil
}
