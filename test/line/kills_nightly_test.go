//go:build nightly

package line_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
)

const (
	// kills is how often the home of a line is killed. LINE_KILLS sets another number.
	kills = 30
	// homeKills is how often a home is killed that half of the waiters are connected to. LINE_HOME_KILLS sets another number.
	homeKills = 15
)

var _ = Describe("A line whose homes are killed again and again", Label("nightly"), func() {
	It("outlives each of them", func(ctx context.Context) {
		installed := install(ctx, 3)
		for try := range numberOf("LINE_KILLS", kills) {
			installed.killHome(ctx, fmt.Sprintf("report-%d", try), 200)
			installed.mend(ctx)
		}
	})

	It("keeps the places of those who were connected to each of them", func(ctx context.Context) {
		installed := install(ctx, 3)
		for try := range numberOf("LINE_HOME_KILLS", homeKills) {
			installed.killHomeOfCallers(ctx, fmt.Sprintf("kept-%d", try), 60)
			installed.mend(ctx)
		}
	})
})
