package locktoken

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

// SecretBytes is the size of a [Secret].
const SecretBytes = 20

// derivedBit of the first byte of a secret says that it was derived.
const derivedBit = 0x80

// Secret proves a grant. A lock stores a hash of it, so reading the lock gives no power over it.
type Secret [SecretBytes]byte

// NewSecret returns a secret of 159 random bits.
func NewSecret() Secret {
	var secret Secret
	// It never fails.
	_, _ = rand.Read(secret[:])
	secret[0] &^= derivedBit
	return secret
}

// DeriveSecret returns the secret that the same parts always give, so that a repeated acquisition
// finds its own grant. It is as secret as its parts are.
func DeriveSecret(parts ...string) Secret {
	hash := sha256.New()
	for _, part := range parts {
		// With its length, so that other parts give another text.
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		hash.Write([]byte(part))
	}
	secret := Secret(hash.Sum(nil)[:SecretBytes])
	secret[0] |= derivedBit
	return secret
}

// IsDerived reports whether another acquisition may have the secret, too.
func (s Secret) IsDerived() bool { return s[0]&derivedBit != 0 }
