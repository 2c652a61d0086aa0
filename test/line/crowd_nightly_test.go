//go:build nightly

package line_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// crowdedAtNight is how many wait. LINE_CROWD sets another number.
const crowdedAtNight = 10_000

var _ = Describe("A very large crowd that waits", Label("nightly"), func() {
	It("stands in one line, and leaves nothing behind when it leaves", func(ctx context.Context) {
		waiting := gather(ctx, numberOf("LINE_CROWD", crowdedAtNight))
		waiting.disperse()
		waiting.installed.awaitAll(ctx, waiting.scraper, 0)
		Expect(waiting.first.Release(ctx)).To(Succeed())
	})
})
