package ui_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// As long as any viewer is there, one who comes later, or again, sees the last holders, too.
func TestAViewerWhoComesLateSeesTheLastHolders(t *testing.T) {
	f := newFacade(t, nil)
	first := open(t, f.url())
	first.shows(".link", "Live")
	f.release(f.hold("shop", "a", "alice", time.Hour))
	first.shows(".activity li.released", "alice")
	brief := f.hold("shop", "a", "bob", 300*time.Millisecond, standingFor("Pod", "worker-1"))
	first.shows(".activity li.expired", "bob")
	f.hold("shop", "a", "carol", time.Hour)
	// So many batches of changes that the state which the first viewer was given is too old for others.
	for i := range 40 {
		key := fmt.Sprint("other-", i)
		f.release(f.hold("shop", key, "dave", time.Hour))
		first.shows(".activity li.released", key)
	}
	late := open(t, f.url()+"#/namespaces/shop/locks/a")
	for range 2 {
		late.shows(".timeline li:nth-child(1)", "carol")
		late.shows(".timeline li:nth-child(1)", "holds it")
		late.shows(".timeline li:nth-child(2)", "bob")
		late.shows(".timeline li:nth-child(2)", "Pod worker-1")
		late.shows(".timeline li:nth-child(2)", "expired after "+fmt.Sprintf("%.1fs", brief.Spec.ExpireTime.Sub(brief.Spec.AcquireTime.Time).Seconds()))
		late.shows(".timeline li:nth-child(3)", "released after")
		late.await(`document.querySelectorAll(".timeline li").length === 3`)
		late.do(chromedp.Reload())
	}
	late.quiet(f.address)
}
