package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/google/uuid"
)

// Owner tokens with these beginnings are hashes of secrets. A door of the façade whose callers show
// the secret stores them; no caller may show or choose one, so reading a Lock gives no power over
// it.
const (
	// randomHashPrefix begins the hash of a secret that one acquisition made for itself.
	randomHashPrefix = "sha256:"
	// derivedHashPrefix begins the hash of a secret that a repeated acquisition has again.
	derivedHashPrefix = "sha256-derived:"
)

// HashedOwner returns the owner token that stands for a secret. A secret isDerived if another
// acquisition may have it, too. The secret must be long enough that it cannot be guessed.
func HashedOwner(secret []byte, isDerived bool) string {
	hash := sha256.Sum256(secret)
	if isDerived {
		return derivedHashPrefix + hex.EncodeToString(hash[:])
	}
	return randomHashPrefix + hex.EncodeToString(hash[:])
}

// IsHashedOwner reports whether the owner token has the form of one that [HashedOwner] returns.
// Doors must not take such a text from a caller.
func IsHashedOwner(owner string) bool {
	return strings.HasPrefix(owner, randomHashPrefix) || IsDerivedOwner(owner)
}

// IsDerivedOwner reports whether the owner token is the hash of a secret that a repeated acquisition has again. All
// that have it are one request that was sent several times.
func IsDerivedOwner(owner string) bool { return strings.HasPrefix(owner, derivedHashPrefix) }

// IsRandomOwner reports whether the owner token, a UUID v4 or such a hash, is of one acquisition alone. Callers that
// share another one may acquire through two replicas in the same microsecond.
func IsRandomOwner(owner string) bool {
	if strings.HasPrefix(owner, randomHashPrefix) {
		return true
	}
	id, err := uuid.Parse(owner)
	return err == nil && id.Version() == 4
}
