package ui_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

func TestAViewerSeesWhatHappenedBefore(t *testing.T) {
	f := newFacade(t, nil)
	first := open(t, f.url())
	first.shows(".empty", "No lock is held.")
	first.await(`!document.querySelector(".activity")`)
	first.shows(".viewer summary", "No sign-in")
	f.release(f.hold("shop", "ended", "alice", time.Hour))
	first.shows(".activity li.released", "ended")
	f.hold("shop", "held", "bob", time.Hour)
	first.shows(".activity li.acquired", "held")

	late := open(t, f.url())
	late.shows(".activity li.released", "alice")
	late.await(`[...document.querySelectorAll(".activity li")].map(e => e.className + " " + e.querySelector("a").textContent).slice(0, 2).join() === "acquired held,released ended"`)
	late.await(`/20\d\d.*(UTC|GMT|[A-Z]{3,4})/.test(document.querySelector(".activity time").title)`)
	late.quiet(f.address)
}

func TestTimesHaveDateAndZone(t *testing.T) {
	f := newFacade(t, nil)
	f.hold("shop", "a", "alice", time.Hour)
	s := open(t, f.url()+"#/namespaces/shop/locks/a")
	s.shows(".facts", "alice")
	s.await(`[...document.querySelectorAll(".facts dd, .ends, .timeline li, .timeline p")].filter(e => /\d:\d\d:\d\d/.test(e.textContent)).length === 5`)
	s.await(`[...document.querySelectorAll(".facts dd, .ends, .timeline li, .timeline p")].every(e => !/\d:\d\d:\d\d/.test(e.textContent) || /20\d\d.*\d:\d\d:\d\d.*[A-Z]{3}/.test(e.textContent))`)
}

func TestAPhoneShowsTheNamespaces(t *testing.T) {
	f := newFacade(t, nil)
	one := open(t, f.url(), chromedp.EmulateViewport(390, 844))
	one.await(`document.querySelector(".scope")?.offsetWidth > 30`)

	f = newFacade(t, &viewers{users: map[string]string{"secret": "dana"}})
	f.hold("shop", "a-key-that-is-longer-than-the-screen-of-a-phone-is-wide", "alice", time.Hour)
	all := open(t, f.url(), chromedp.EmulateViewport(390, 844))
	signIn(all, "secret")
	all.shows(".lock .key small", "shop")
	all.await(`document.querySelector(".lock .key small").offsetWidth > 20`)
}
