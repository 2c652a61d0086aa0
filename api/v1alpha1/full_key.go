package v1alpha1

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// MaxKeyBytes is the longest key and the longest function name, in bytes of
// UTF-8 after NFC normalisation.
const MaxKeyBytes = 512

// MaxOwnerBytes is the longest owner token, in bytes of UTF-8.
const MaxOwnerBytes = 512

// fullKeyPrefix begins every full key (Forrst, atomic lock, "Lock Key Format").
const fullKeyPrefix = "lock:"

// FullKey is what requests contend for: "lock:{key}" or "lock:{function}:{key}",
// in NFC. Two requests in a namespace exclude each other if and only if their
// full keys are equal. The same full key may come from different parts: global
// "f:k" and "k" of function "f" are one lock, because the Forrst protocol
// releases by the joined text.
type FullKey string

// NewFullKey joins valid parts. Function is used only with [ScopeFunction].
func NewFullKey(scope Scope, function, key string) FullKey {
	bare := key
	if scope == ScopeFunction {
		bare = function + ":" + key
	}
	return FullKeyOf(bare)
}

// FullKeyOf returns the full key of a text that already is function and key
// joined, or a global key, without the prefix "lock:".
func FullKeyOf(bare string) FullKey {
	return FullKey(fullKeyPrefix + norm.NFC.String(bare))
}

// FullKey returns what the lock locks.
func (s *LockSpec) FullKey() FullKey {
	return NewFullKey(s.Scope, s.Function, s.Key)
}

// Bare returns the full key without its prefix.
func (k FullKey) Bare() string { return strings.TrimPrefix(string(k), fullKeyPrefix) }

// NormalizeKey returns a key or function name as it is stored by the service.
func NormalizeKey(key string) string { return norm.NFC.String(key) }

// ValidateKey reports what is wrong with a key: it must have 1 to [MaxKeyBytes]
// bytes of UTF-8 after NFC normalisation and no control characters.
func ValidateKey(key string) error { return validateKeyPart(key) }

// ValidateFunction reports what is wrong with a function name. The rules are
// those of a key.
func ValidateFunction(function string) error { return validateKeyPart(function) }

// ValidateOwner reports what is wrong with an owner token: it must have 1 to
// [MaxOwnerBytes] bytes of UTF-8. The error does not repeat the token.
func ValidateOwner(owner string) error {
	switch {
	case owner == "":
		return errors.New("must not be empty")
	case !utf8.ValidString(owner):
		return errors.New("must be valid UTF-8")
	case len(owner) > MaxOwnerBytes:
		return fmt.Errorf("must be at most %d bytes, not %d", MaxOwnerBytes, len(owner))
	}
	return nil
}

func validateKeyPart(text string) error {
	switch {
	case text == "":
		return errors.New("must not be empty")
	case !utf8.ValidString(text):
		return errors.New("must be valid UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("must not contain control characters")
	}
	if size := len(norm.NFC.String(text)); size > MaxKeyBytes {
		return fmt.Errorf("must be at most %d bytes of UTF-8 after NFC normalisation, not %d", MaxKeyBytes, size)
	}
	return nil
}
