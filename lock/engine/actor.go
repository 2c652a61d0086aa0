package engine

import (
	"context"
	"forrst.dev/lock-operator/lock"
)

// actor is who shows the proof: the user on whose behalf the engine acts, or else the
// holder that the caller has been found to be.
func actor(ctx context.Context, proof lock.Proof) string {
	if user := lock.UserFrom(ctx); user != "" {
		return user
	}
	return proof.Holder
}
