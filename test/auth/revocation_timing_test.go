//go:build timing

package auth_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"forrst.dev/lock-operator/auth"
)

// docs/operations.md and docs/threat-model.md say how long.
var _ = Describe("With the caches of a real façade, on a machine of its own,", Label("timing"), func() {
	It("a right and a token that were taken away end within the documented time", func(ctx context.Context) {
		// The API server remembers for as long as the façade that it has accepted a token.
		const slack, rightGone, tokenGone = time.Second, auth.AllowTTL, 2 * auth.TokenTTL
		revoke(ctx, rightGone+slack, auth.DenyTTL+slack, tokenGone+slack)
	})
})
