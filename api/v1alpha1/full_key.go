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

// ValidateKey reports what is wrong with the key, or with the function name, of a new lock. It must have 1 to [MaxKeyBytes]
// bytes of UTF-8 after NFC normalisation, no control characters, no invisible characters, and no white space at its
// beginning or end: two keys that people and tools show alike should be one lock. Invisible are the characters with the
// Unicode property Default_Ignorable_Code_Point, such as U+200B and those that join or vary emoji. The error names the
// character and its place, counted from 1.
func ValidateKey(key string) error {
	if err := ValidateStoredKey(key); err != nil {
		return err
	}
	place, last := 0, utf8.RuneCountInString(key)
	for _, char := range key {
		place++
		switch {
		case unicode.Is(defaultIgnorable, char):
			return fmt.Errorf("must not contain invisible characters: character %d is %U", place, char)
		case (place == 1 || place == last) && unicode.IsSpace(char):
			return fmt.Errorf("must not begin or end with white space: character %d is %U", place, char)
		}
	}
	return nil
}

// defaultIgnorable has the characters with the Unicode property Default_Ignorable_Code_Point, which tools show as
// nothing. Package unicode has only what the property is derived from. The pattern of spec.key in the schema has the same.
var defaultIgnorable = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x00ad, 0x00ad, 1}, {0x034f, 0x034f, 1}, {0x061c, 0x061c, 1}, {0x115f, 0x1160, 1}, {0x17b4, 0x17b5, 1},
		{0x180b, 0x180f, 1}, {0x200b, 0x200f, 1}, {0x202a, 0x202e, 1}, {0x2060, 0x206f, 1}, {0x3164, 0x3164, 1},
		{0xfe00, 0xfe0f, 1}, {0xfeff, 0xfeff, 1}, {0xffa0, 0xffa0, 1}, {0xfff0, 0xfff8, 1},
	},
	R32:         []unicode.Range32{{0x1bca0, 0x1bca3, 1}, {0x1d173, 0x1d17a, 1}, {0xe0000, 0xe0fff, 1}},
	LatinOffset: 1,
}

// ValidateStoredKey reports what no lock has as its key or as its function name. It accepts what [ValidateKey] refuses for
// being invisible: a lock that an earlier release has granted under such a key can be read, renewed and ended.
func ValidateStoredKey(key string) error {
	switch {
	case key == "":
		return errors.New("must not be empty")
	case !utf8.ValidString(key):
		return errors.New("must be valid UTF-8")
	case strings.ContainsFunc(key, unicode.IsControl):
		return errors.New("must not contain control characters")
	}
	if size := len(norm.NFC.String(key)); size > MaxKeyBytes {
		return fmt.Errorf("must be at most %d bytes of UTF-8 after NFC normalisation, not %d", MaxKeyBytes, size)
	}
	return nil
}

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
