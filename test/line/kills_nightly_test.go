//go:build nightly

package line_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
)

// kills is how often the home of a line is killed. LINE_KILLS sets another number.
const kills = 30

var _ = Describe("A line whose homes are killed again and again", Label("nightly"), func() {
	It("outlives each of them", func(ctx context.Context) {
		installed := install(ctx, 3)
		for try := range numberOf("LINE_KILLS", kills) {
			installed.killHome(ctx, fmt.Sprintf("report-%d", try), 200)
			installed.mend(ctx)
		}
	})
})
