package locks

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// Claim is what a caller shows of the grant that it wants to renew or to release. The zero Claim is
// of no grant.
type Claim struct{ limits lock.Proof }

// OwnerClaim returns the claim of a caller that shows an owner token. A text that is the hash of a
// [Secret] is of no grant: locks that such a hash is the owner of are shown to users who may read
// them.
func OwnerClaim(owner string) Claim {
	if rules.IsHashedOwner(owner) {
		return Claim{}
	}
	return Claim{lock.Proof{Owner: owner}}
}

// OfGrant returns the claim to the grant with this fencing token alone. Zero means any grant.
func (c Claim) OfGrant(fencingToken int64) Claim {
	c.limits.FencingToken = fencingToken
	return c
}

// WithVersion returns the claim on the condition that the lock is stored in this resourceVersion. If
// it is stored in another one, the error matches [lock.ErrStale].
func (c Claim) WithVersion(resourceVersion string) Claim {
	c.limits.ResourceVersion = resourceVersion
	return c
}

// noOwner is the owner token of no grant: it is not valid UTF-8.
const noOwner = "\xff"

// proof returns what the caller shows to the backend.
func (c Claim) proof(caller *access.Caller) lock.Proof {
	proof := c.limits
	if proof.Owner == "" {
		proof.Owner = noOwner
	}
	proof.Holder = caller.Proof("").Holder
	return proof
}

// SecretBytes is the size of a [Secret].
const SecretBytes = 20

// derivedBit of the first byte of a secret says that it was derived.
const derivedBit = 0x80

// Secret proves a grant at a door that makes the owner tokens of its callers. The lock stores a hash of
// it, so reading the lock gives no power over it.
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

// Claim returns the claim to the grant with this fencing token that the secret was made for. A random
// secret is of one grant alone: its claim does without the number, which a write moves on that no
// admission has seen.
func (s Secret) Claim(fencingToken int64) Claim {
	proof := lock.Proof{Owner: s.owner()}
	if s.isDerived() {
		proof.FencingToken = fencingToken
	}
	return Claim{proof}
}

// IsOf reports whether a lock with this owner token was granted to the secret.
func (s Secret) IsOf(owner string) bool { return owner == s.owner() }

// IsOfGrant reports whether a lock records the grant with this fencing token that the secret was made
// for.
func (s Secret) IsOfGrant(held *v1alpha1.Lock, fencingToken int64) bool {
	if !s.IsOf(held.Spec.Owner) {
		return false
	}
	token, err := held.FencingToken()
	return !s.isDerived() || err == nil && token == fencingToken
}

func (s Secret) isDerived() bool { return s[0]&derivedBit != 0 }

func (s Secret) owner() string { return rules.HashedOwner(s[:], s.isDerived()) }

var errReservedOwner = field.Invalid(field.NewPath("spec", "owner"), field.OmitValueType{}, "must not have the form of a hash that the service makes")
