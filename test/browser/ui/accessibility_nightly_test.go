//go:build nightly

package ui_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// axe looks for violations in a state of the page.
type axe struct {
	script string
	// scheme is the state's.
	scheme string
}

func readAxe(t *testing.T) axe {
	t.Helper()
	script, err := os.ReadFile("../../../web/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: make web/node_modules installs axe-core, which takes npm", err)
	}
	return axe{script: string(script)}
}

func (a axe) check(s *screen, state string) {
	s.t.Helper()
	found := evaluate[[]string](s, a.script+`; axe.run(document).then(r => [r.passes.length + " rules pass", ...r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html.slice(0, 160) + " " + n.failureSummary).join(" | "))])`)
	if len(found) != 1 {
		s.t.Errorf("%s, %s: %s", a.scheme, state, strings.Join(found, "\n"))
	} else {
		s.t.Logf("%s, %s: %s", a.scheme, state, found[0])
	}
}

// axe must find nothing, in each state of the page.
func TestNightlyAccessibility(t *testing.T) {
	axe := readAxe(t)
	f := newFacade(t, &viewers{users: map[string]string{"secret": "dana@example.com", "stranger": "sam"}, deny: map[string][]string{"sam": {"list", "watch"}}})
	populate(f)
	for _, preferred := range []string{"light", "dark"} {
		axe.scheme = preferred
		s := open(t, f.url(), scheme(axe.scheme))
		s.shows(".refused", "Who are you?")
		axe.check(s, "no token")
		signIn(s, "secret")
		s.shows(".lock", "billing:close")
		s.await(`document.querySelectorAll(".dots").length > 2`)
		axe.check(s, "list")
		s.click(".viewer summary")
		axe.check(s, "rights")
		s.click(".viewer summary")
		s.click(`.lock[data-key="billing:report"] a`)
		s.shows(".waiters li", "alice@example.com")
		axe.check(s, "lock")
		s.do(chromedp.EmulateViewport(390, 844))
		axe.check(s, "lock on a phone")
		s.fits()
		s.click("button.close")
		s.shows(".lock", "billing:close")
		axe.check(s, "list on a phone")
		s.fits()
		s.do(chromedp.EmulateViewport(1440, 900))
		s.click(`.lock[data-key="deploy:checkout"] a`)
		s.click(".danger .force")
		s.shows("dialog", "by force?")
		axe.check(s, "forced release")
		stranger := open(t, f.url()+"#/?namespace=shop", scheme(axe.scheme))
		signIn(stranger, "stranger")
		stranger.shows(".refused", "You may not see this")
		axe.check(stranger, "refused")
	}
}

// fits fails if a phone has to scroll sideways.
func (s *screen) fits() {
	s.t.Helper()
	if evaluate[bool](s, `document.documentElement.scrollWidth > innerWidth`) {
		s.t.Error("a phone has to scroll sideways")
	}
}

// The same when there is nothing to show, when a lock has ended, and when what is shown may be old.
func TestNightlyAccessibilityOfRareStates(t *testing.T) {
	axe := readAxe(t)
	for _, preferred := range []string{"light", "dark"} {
		axe.scheme = preferred
		f := newFacade(t, nil)
		s := open(t, f.url(), scheme(axe.scheme))
		s.shows(".empty", "No lock is held.")
		axe.check(s, "no lock")
		held := f.hold("shop", "a", "alice", time.Hour, because("nightly report"), standingFor("Pod", "worker-1"))
		f.wait("shop", "a", "bob", "carol")
		f.hold("shop", "b", "alice", time.Hour, because("hourly report"))
		narrowed := open(t, f.url()+"#/?q=nothing", scheme(axe.scheme))
		narrowed.shows(".empty", "No lock fits.")
		axe.check(narrowed, "no lock that fits")

		s.click(`.lock[data-key="a"] a`)
		s.shows(".waiters li", "carol")
		s.click(".danger .force")
		s.enter("#reason", "it is stuck")
		f.release(held)
		f.hold("shop", "a", "bob", time.Hour)
		s.shows("dialog [role=alert]", "Meanwhile bob holds the lock")
		axe.check(s, "forced release of an old holder")
		f.stop()
		s.shows("dialog [role=alert]", "The connection is lost")
		axe.check(s, "forced release without a connection")
		f.start()
		// The button moves when this goes, and a click that is under way would miss it.
		s.hides("dialog [role=alert]", "The connection is lost")
		s.click("dialog [role=alert] button")
		s.await(`!document.querySelector("dialog .force").disabled`)
		s.click("dialog .force")
		s.shows(".notice", "Done")
		s.shows(".state", "Free")
		axe.check(s, "freed")
		f.hold("shop", "a", "carol", time.Hour)
		f.hold("shop", "c", "dave", time.Hour, because("all day"), standingFor("Job", "daily-7"))
		s.shows(".facts", "carol")
		s.shows(".lock", "c")
		f.stop()
		s.shows(".link", "Connection lost")
		axe.check(s, "the connection is lost")
		s.do(chromedp.EmulateViewport(390, 844))
		s.click("button.close")
		s.shows(".lock", "c")
		axe.check(s, "the connection is lost on a phone")
		s.fits()
		f.start()
		s.shows(".link", "Live")
	}
}
