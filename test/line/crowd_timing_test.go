//go:build timing

package line_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	// crowded is how many wait. LINE_CROWD sets another number.
	crowded = 2_000
	// silence is for how long they must cost the API server nothing.
	silence = 30 * time.Second
	// perWaiter is what one may take of the memory of the replica that it has called, and perPlace of that of the home.
	perWaiter, perPlace = 24 << 10, 1 << 10
)

var _ = Describe("A crowd that waits", Label("timing"), func() {
	It("costs the API server nothing, and little memory", func(ctx context.Context) {
		// The heap is then little more than what is in use.
		GinkgoT().Setenv("GOGC", "10")
		number := numberOf("LINE_CROWD", crowded)
		waiting := gather(ctx, number)
		installed := waiting.installed
		Eventually(func(g Gomega) { // What their arrival cost has ended.
			before := installed.made()
			<-time.After(3 * time.Second)
			g.Expect(installed.made()).To(Equal(before))
		}).WithTimeout(time.Minute).Should(Succeed())

		// Each queue reads its lock once a minute, and at once if its watch is late: so not in each such time.
		Eventually(func() requests {
			before := installed.made()
			<-time.After(silence)
			return installed.made().since(before)
		}).WithTimeout(4 * silence).Should(Equal(requests{}))

		share := float64(number) / float64(len(waiting.others))
		var places, edges []float64
		for _, at := range installed.all {
			now, empty := at.least(ctx, waiting.scraper), waiting.empty[at]
			live, resident := now.inUse-empty.inUse, now.resident-empty.resident
			if at == waiting.home {
				GinkgoWriter.Printf("home: %.0f bytes in use for each place, %.0f resident\n", live/float64(number), resident/float64(number))
				places = append(places, live/float64(number))
				continue
			}
			GinkgoWriter.Printf("edge: %.0f bytes in use for each waiter, %.0f resident\n", live/share, resident/share)
			edges = append(edges, resident/share)
		}
		Expect(places).To(HaveEach(BeNumerically("<=", perPlace)))
		Expect(edges).To(HaveEach(BeNumerically("<=", perWaiter)))
		waiting.disperse()
		Expect(waiting.first.Release(ctx)).To(Succeed())
	})
})

// least is the smallest footprint within some seconds: the others have what is not collected yet.
func (r *replica) least(ctx context.Context, token string) footprint {
	GinkgoHelper()
	least := r.footprint(ctx, token)
	for range 10 {
		<-time.After(500 * time.Millisecond)
		now := r.footprint(ctx, token)
		least.inUse, least.resident = min(least.inUse, now.inUse), min(least.resident, now.resident)
	}
	return least
}
