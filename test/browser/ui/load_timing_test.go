//go:build timing

package ui_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// A thousand changes a second of ten thousand locks leave the page its frames.
func TestTimingTenThousandLocks(t *testing.T) {
	const count, perSecond = 10_000, 1000
	f := newFacade(t, nil)
	held := make([]*v1alpha1.Lock, count)
	for i := range held {
		held[i] = f.hold("shop", fmt.Sprintf("key:%05d", i), fmt.Sprintf("holder-%d", i%97), time.Hour)
	}
	s := open(t, f.url())
	s.await(`document.querySelector(".list")?.ariaRowCount === "10001"`)
	s.await(`document.querySelectorAll(".lock").length < 60`)
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		done := 0
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		begun := time.Now()
		for {
			select {
			case <-stop:
				stopped <- int(float64(done) / time.Since(begun).Seconds())
				return
			case <-ticker.C:
				for due := int(time.Since(begun).Seconds() * perSecond); done < due; done++ {
					each := held[done*7919%count]
					_, _ = f.Renew(t.Context(), each.Namespace, each.Spec.FullKey(), lock.Proof{Owner: each.Spec.Owner, Holder: each.Spec.Holder}, time.Duration(3600+done%60)*time.Second)
				}
			}
		}
	}()
	frames := evaluate[[]float64](s, `new Promise(done => {
		const times = [], begun = performance.now();
		let last = begun;
		const list = document.querySelector(".scroll");
		const look = now => {
			times.push(now - last);
			last = now;
			list.scrollTop += 23;
			if (now - begun < 5000) requestAnimationFrame(look); else done(times.slice(5));
		};
		requestAnimationFrame(look);
	})`)
	shownRate := evaluate[string](s, `document.querySelector(".stats .rate b").textContent`)
	close(stop)
	rate := <-stopped
	slices.Sort(frames)
	median, late := frames[len(frames)/2], frames[len(frames)*99/100]
	t.Logf("%d changes a second, shown as %s: %d frames in 5 s, median %.1f ms, 99%% %.1f ms, longest %.1f ms", rate, shownRate, len(frames), median, late, frames[len(frames)-1])
	if rate < perSecond*8/10 || median > 50 || late > 250 {
		t.Errorf("the page stutters")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams != 1 {
		t.Errorf("%d streams of the backend", f.streams)
	}
}
