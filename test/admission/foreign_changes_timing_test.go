//go:build timing

package admission_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A held lock that many other users change all the time", Label("timing"), func() {
	It("is renewed by its holder long before it expires", func(ctx context.Context) {
		const ttl = 4 * time.Second
		began := time.Now()
		renewAmongStrangers(ctx, 8, ttl)
		Expect(time.Since(began)).To(BeNumerically("<", 8*ttl/2), "eight renewals, and the release")
	})
})
