package lock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// Info describes a held lock, for people and monitoring. It may be out of date when it arrives:
// never decide by it whether to write. Use [Held] and its fencing token for that.
type Info struct {
	// Key is the [Fingerprint] of the full key or, with [WithKeys] or [WithRaw], the full key.
	Key string
	// Owner is the [Fingerprint] of the owner token or, with [WithRaw], the token. Empty if the
	// backend does not return it.
	Owner string
	// Holder is the authenticated identity that acquired the lock.
	Holder string
	// Reason says why the holder holds the lock. It may be empty.
	Reason string
	// FencingToken is the number of the grant; zero if unknown.
	FencingToken int64
	// TTL is how long the lock lives after each renewal.
	TTL time.Duration
	// AcquireTime, RenewTime and ExpireTime are times of the service's clock.
	AcquireTime, RenewTime, ExpireTime time.Time
}

// Fingerprint returns the first 96 bits of the SHA-256 of a key or owner token in hex. Equal texts
// have equal fingerprints, which can replace them in logs. A fingerprint does not hide a text that
// can be guessed. That of an empty text is empty.
func Fingerprint(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	var digits [24]byte
	hex.Encode(digits[:], sum[:len(digits)/2])
	return string(digits[:])
}

// Get returns the holder and the times of the lock of the key. The error matches [ErrNotHeld] if
// the lock is free, or [ErrUnavailable].
func (c *Client) Get(ctx context.Context, key string, options ...Option) (Info, error) {
	settings, err := c.settings("Get", ofGet, key, options)
	if err != nil {
		return Info{}, err
	}
	lock, err := c.backend.Get(ctx, c.namespace, settings.request.FullKey())
	if err != nil {
		return Info{}, err
	}
	return settings.info(lock), nil
}

// Info describes the lock as the last answer to an acquire or a renewal of this Held has it, with
// fingerprints of key and owner token. Unlike [Client.Get] it makes no request.
func (h *Held) Info() Info {
	h.mu.Lock()
	defer h.mu.Unlock()
	return new(settings).info(h.stored)
}

// List describes the held locks of the namespace, ordered by the names of their objects; with
// [WithOwner] only those of the owner token.
func (c *Client) List(ctx context.Context, options ...Option) ([]Info, error) {
	settings, err := c.settings("List", ofList, "", options)
	if err != nil {
		return nil, err
	}
	locks, err := c.backend.List(ctx, c.namespace, Filter{Owner: settings.request.Owner})
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(locks))
	for index := range locks {
		infos = append(infos, settings.info(&locks[index]))
	}
	return infos, nil
}

// Owns reports whether the lock of the key is held under the owner token. Like [Client.Get] it is
// for diagnosis and does not protect a write.
func (c *Client) Owns(ctx context.Context, key, owner string, options ...Option) (bool, error) {
	settings, err := c.settings("Owns", ofKey, key, options)
	if err != nil {
		return false, err
	}
	return c.owns(ctx, settings.request.FullKey(), owner)
}

// Owns asks the service whether the lock is held under the owner token of this Held. It is for
// diagnosis and does not protect a write: the fencing token does, and [Held.Err] costs no request.
func (h *Held) Owns(ctx context.Context) (bool, error) {
	return h.client.owns(ctx, h.key, h.proof.Owner)
}

func (c *Client) owns(ctx context.Context, key v1alpha1.FullKey, owner string) (bool, error) {
	lock, err := c.backend.Get(ctx, c.namespace, key)
	if errors.Is(err, ErrNotHeld) {
		return false, nil
	}
	return err == nil && lock.Spec.Owner == owner, err
}

// ForceRelease ends the lock of the key for any holder. The holder may continue its work until it
// notices. The reason is recorded, must not be blank and has at most [rules.MaxReasonLength] characters. Without
// [WithFencingToken] it may end the lock of a holder that the caller has not seen yet.
//
// The error matches [ErrNotHeld], [ErrOtherGrant], [ErrInvalid] or [ErrUnavailable], or is that of ctx if ctx ended before the
// write was sent.
func (c *Client) ForceRelease(ctx context.Context, key, reason string, options ...Option) error {
	path := field.NewPath("reason")
	switch {
	case strings.TrimSpace(reason) == "":
		return &InvalidError{Problems: field.ErrorList{field.Required(path, "say why the lock is taken from its holder")}}
	case utf8.RuneCountInString(reason) > rules.MaxReasonLength:
		return &InvalidError{Problems: field.ErrorList{field.TooLong(path, field.OmitValueType{}, rules.MaxReasonLength)}}
	}
	settings, err := c.settings("ForceRelease", ofForce, key, options)
	if err != nil {
		return err
	}
	return c.backend.ForceRelease(ctx, c.namespace, settings.request.FullKey(), reason, settings.precondition)
}

// info describes the lock as far as the settings allow.
func (s *settings) info(lock *v1alpha1.Lock) Info {
	info := Info{
		Key:         string(lock.Spec.FullKey()),
		Owner:       lock.Spec.Owner,
		Holder:      lock.Spec.Holder,
		Reason:      lock.Spec.Reason,
		TTL:         ttlOf(lock, 0),
		AcquireTime: timeOf(lock.Spec.AcquireTime),
		RenewTime:   timeOf(lock.Spec.RenewTime),
		ExpireTime:  timeOf(lock.Spec.ExpireTime),
	}
	if token, err := lock.FencingToken(); err == nil {
		info.FencingToken = token
	}
	if !s.isRaw {
		info.Owner = Fingerprint(info.Owner)
	}
	if !s.isRaw && !s.hasKeys {
		info.Key = Fingerprint(info.Key)
	}
	return info
}

func timeOf(stamp *v1alpha1.Timestamp) time.Time {
	if stamp == nil {
		return time.Time{}
	}
	return stamp.Time
}
