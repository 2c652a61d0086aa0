//go:build timing

package browser_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// latest is how long after its cause a page may be told an event.
const latest = 200 * time.Millisecond

var _ = Describe("An EventSource", Label("timing"), func() {
	It("is told each event within 200 ms", func(ctx context.Context) {
		delays := tellAll(ctx, "flag:timed", 5, 500*time.Millisecond)
		for _, name := range []string{"acquired", "renewed", "handed-off", "released", "expired"} {
			slices.Sort(delays[name])
			AddReportEntry(fmt.Sprintf("%s: median %v, longest %v of %d", name, delays[name][len(delays[name])/2], slices.Max(delays[name]), len(delays[name])))
			Expect(slices.Max(delays[name])).To(BeNumerically("<=", latest), name)
		}
	})
})
