package rules

import (
	"strings"
	"testing"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestHashedOwners(t *testing.T) {
	random, derived := HashedOwner([]byte("secret"), false), HashedOwner([]byte("secret"), true)
	for _, owner := range []string{random, derived} {
		if err := v1alpha1.ValidateOwner(owner); err != nil || !IsHashedOwner(owner) || strings.Contains(owner, "secret") {
			t.Errorf("%s: %v", owner, err)
		}
	}
	if !IsRandomOwner(random) || IsRandomOwner(derived) || random == derived {
		t.Errorf("%s is not told from %s", random, derived)
	}
	if random != HashedOwner([]byte("secret"), false) || random == HashedOwner([]byte("secret2"), false) {
		t.Error("the hash is not that of the secret")
	}
	for _, owner := range []string{"", "alice", "sha256", "550e8400-e29b-41d4-a716-446655440000"} {
		if IsHashedOwner(owner) {
			t.Errorf("%q is taken for a hash", owner)
		}
	}
}
