//go:build nightly

package ui_test

import (
	"fmt"
	"testing"
	"time"
)

// A browser whose clock is wrong, or is set while the page is open, shows what is left by the service's time.
func TestNightlyAWrongClockOfTheBrowser(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"fast": time.Hour, "slow": -26 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			f := newFacade(t, nil)
			f.hold("shop", "before", "alice", time.Hour)
			s := open(t, f.url(), beforeLoad(fmt.Sprintf(wrongDate, wrong.Milliseconds())))
			s.shows(".lock", "before")
			s.seeExpiries()
			for _, wrong := range []time.Duration{wrong, 0, -wrong} {
				evaluate[float64](s, fmt.Sprintf("window.wrong = %d", wrong.Milliseconds()))
				held := f.hold("shop", "long", "bob", 9*time.Second)
				s.shows(".lock", "long")
				// The largest differences of the text and of the bar from what is left, in seconds.
				off := evaluate[[]float64](s, fmt.Sprintf(`new Promise(done => {
					const row = document.querySelector(".lock[data-key=long]"), begun = performance.now();
					let text = 0, bar = 0;
					const look = () => {
						const left = (%d - window.rightNow()) / 1000, passed = performance.now() - begun;
						text = Math.max(text, Math.abs(parseFloat(row.querySelector(".left").textContent) - left));
						const shown = new DOMMatrix(getComputedStyle(row.querySelector(".bar span")).transform).a * 9;
						if (passed > 500) bar = Math.max(bar, Math.abs(shown - left)); // It has filled by then.
						if (passed < 2000) requestAnimationFrame(look); else done([text, bar]);
					};
					look();
				})`, held.Spec.ExpireTime.UnixMilli()))
				if off[0] > 5 || off[1] > 5 {
					t.Errorf("with a clock that is wrong by %v: the text is wrong by %.2f s, the bar by %.2f s", wrong, off[0], off[1])
				}
				s.expire(f, 3, noMatterWhen)
				f.release(held)
				s.hides(".lock", "long")
			}
			s.quiet(f.address)
		})
	}
}
