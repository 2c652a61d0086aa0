//go:build timing

package line_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	// killsTimed is how often the home of a line is killed.
	killsTimed = 5
	// maxPause is for how long no waiter may get the lock when its home dies.
	maxPause = 2 * time.Second
)

var _ = Describe("The death of the home of a line", Label("timing"), func() {
	It("holds the line up for a short time only", func(ctx context.Context) {
		installed := install(ctx, 3)
		for try := range killsTimed {
			key := fmt.Sprintf("report-%d", try)
			seen := installed.killHome(ctx, key, 200)
			Expect(seen.longest).To(BeNumerically("<", maxPause))
			installed.mend(ctx)
		}
	})
})
