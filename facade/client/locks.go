package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// decode reads a result. What cannot be read is not what was asked for, so it is not
// known what happened.
func decode(answer *envelope.Response, result any) error {
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return &unansweredError{fmt.Errorf("the result cannot be read: %w", err)}
	}
	return nil
}

// lockOf returns the lock that the façade describes.
func lockOf(namespace string, described *wire.Lock) (*v1alpha1.Lock, error) {
	key := fullKey(described.FullKey)
	spec := v1alpha1.LockSpec{
		Scope:        v1alpha1.ScopeGlobal,
		Key:          key.Bare(),
		Owner:        described.Owner,
		Holder:       described.Holder,
		Reason:       described.Reason,
		FencingToken: described.FencingToken,
		HolderRef:    described.HolderRef.Reference(),
	}
	if described.Scope == wire.FunctionScope {
		spec.Scope, spec.Function = v1alpha1.ScopeFunction, described.Function
		spec.Key = strings.TrimPrefix(spec.Key, v1alpha1.NormalizeKey(described.Function)+":")
	}
	if described.TTL != nil {
		spec.TTL = &v1alpha1.Duration{Duration: described.TTL.Length}
	}
	if described.ReleaseDelay != nil {
		spec.ReleaseDelay = &v1alpha1.Duration{Duration: described.ReleaseDelay.Length}
	}
	if err := setStamps(&spec, described.AcquiredAt, described.RenewedAt, described.ExpiresAt); err != nil {
		return nil, &unansweredError{fmt.Errorf("the result has a time that cannot be read: %w", err)}
	}
	return &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key.ObjectName()}, Spec: spec}, nil
}

// setStamps reads the stamps of a lock as the façade writes them.
func setStamps(spec *v1alpha1.LockSpec, acquired, renewed, expires string) error {
	for _, stamp := range []struct {
		to   **v1alpha1.Timestamp
		text string
	}{{&spec.AcquireTime, acquired}, {&spec.RenewTime, renewed}, {&spec.ExpireTime, expires}} {
		at, err := time.Parse(time.RFC3339, stamp.text)
		if err != nil {
			return err
		}
		*stamp.to = new(v1alpha1.NewTimestamp(at))
	}
	return nil
}

// errAnotherLock is an answer about something else, so that it is not known what
// happened.
var errAnotherLock = &unansweredError{errors.New("the result is not the lock that was asked for")}

// isOf reports whether a lock is the one with the key, held under the owner token.
func isOf(described *wire.Lock, key v1alpha1.FullKey, owner string) bool {
	return described.Owner == owner && fullKey(described.FullKey) == fullKey(string(key))
}

// fullKey reads a full key as the façade writes it.
func fullKey(text string) v1alpha1.FullKey { return v1alpha1.FullKeyOf(v1alpha1.FullKey(text).Bare()) }

// sent returns the full key with its prefix, which the façade takes off once.
func sent(key v1alpha1.FullKey) string { return "lock:" + key.Bare() }

// durationOf returns nil for a duration of zero.
func durationOf(length time.Duration) *envelope.Duration {
	if length == 0 {
		return nil
	}
	return new(envelope.NewDuration(length))
}
