package locks

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/rules"
)

// Claim is what a caller shows of the grant that it wants to renew or to release. The zero Claim is
// of no grant.
type Claim struct{ limits lock.Proof }

// OwnerClaim returns the claim of a caller that shows an owner token. A text that is the hash of a
// [locktoken.Secret] is of no grant: locks that such a hash is the owner of are shown to users who may read
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

// TakenUpBy returns the claim of a connection which holds the lock from its renewal on. Empty means that none does.
func (c Claim) TakenUpBy(connection string) Claim {
	c.limits.NextConnection = connection
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
	known := caller.Proof("")
	proof.Holder, proof.HolderUID = known.Holder, known.HolderUID
	return proof
}

// TokenClaim returns the claim of a caller that shows a lock token. The lock stores a hash of its
// secret, so reading the lock gives no power over it. A random secret is of one grant alone: its claim
// does without the number, which a write moves on that no admission has seen.
func TokenClaim(token locktoken.Token) Claim {
	proof := lock.Proof{Owner: ownerOf(token.Secret)}
	if token.Secret.IsDerived() {
		proof.FencingToken = token.FencingToken
	}
	return Claim{proof}
}

// IsOwner reports whether a lock with this owner token was granted to the secret.
func IsOwner(secret locktoken.Secret, owner string) bool { return owner == ownerOf(secret) }

func ownerOf(secret locktoken.Secret) string {
	return rules.HashedOwner(secret[:], secret.IsDerived())
}

// IsOfGrant reports whether a lock records the grant that the token was made for.
func IsOfGrant(token locktoken.Token, held *v1alpha1.Lock) bool {
	if !IsOwner(token.Secret, held.Spec.Owner) {
		return false
	}
	fencing, err := held.FencingToken()
	return !token.Secret.IsDerived() || err == nil && fencing == token.FencingToken
}

var errReservedOwner = field.Invalid(field.NewPath("spec", "owner"), field.OmitValueType{}, "must not have the form of a hash that the service makes")
