package ui_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// wrongDate is a script that makes the clock of a browser wrong by so many milliseconds.
const wrongDate = `{
	const right = Date;
	window.rightNow = () => right.now();
	window.wrong = %d;
	window.Date = class extends right {
		constructor(...given) { super(...(given.length ? given : [right.now() + window.wrong])); }
		static now() { return right.now() + window.wrong; }
	};
}`

// noMatterWhen is how long after the fact an expiry may be on the screen of a busy machine. The clocks here are wrong by hours.
const noMatterWhen = time.Minute

// beforeLoad runs a script in each document of a tab before those of the document.
func beforeLoad(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}

// seeExpiries notes when the page shows that a lock has expired, by the machine's clock.
func (s *screen) seeExpiries() {
	s.t.Helper()
	evaluate[bool](s, `(() => {
		const now = window.rightNow ?? Date.now;
		window.seen = {};
		const look = () => {
			for (const row of document.querySelectorAll(".lock.over")) if (row.querySelector(".expired")) window.seen[row.dataset.key] ??= now();
			requestAnimationFrame(look);
		};
		look();
		return true;
	})()`)
}

// expire lets locks expire one after the other, and fails if one is seen to have expired too late, or too early.
func (s *screen) expire(f *facade, count int, latest time.Duration) {
	s.t.Helper()
	var delays []time.Duration
	for i := range count {
		key := fmt.Sprintf("brief:%d", time.Now().UnixNano())
		held := f.hold("shop", key, "alice", time.Duration(400+37*i)*time.Millisecond)
		s.await("window.seen[" + quote(key) + "]")
		at := time.UnixMilli(int64(evaluate[float64](s, "window.seen["+quote(key)+"]")))
		delays = append(delays, at.Sub(held.Spec.ExpireTime.Time))
	}
	slices.Sort(delays)
	s.t.Logf("an expiry is on the screen after %v (median), %v (longest of %d)", delays[count/2], delays[count-1], count)
	// Milliseconds are cut off.
	if delays[0] < -5*time.Millisecond || delays[count-1] > latest {
		s.t.Errorf("delays: %v", delays)
	}
}

func TestAnExpiryIsOnTheScreen(t *testing.T) {
	f := newFacade(t, nil)
	s := open(t, f.url())
	s.shows(".link", "Live")
	s.seeExpiries()
	s.expire(f, 3, noMatterWhen)
}

// Who may follow one lock alone is told the service's time, too.
func TestAWrongClockOfAViewerOfOneLock(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"fast": 3 * time.Hour, "slow": -26 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			f := newFacade(t, viewerOfOneLock("a"))
			f.hold("shop", "a", "alice", time.Hour)
			s := open(t, f.url()+"#/namespaces/shop/locks/a", beforeLoad(fmt.Sprintf(wrongDate, wrong.Milliseconds())))
			signIn(s, "secret")
			s.shows(".facts", "alice")
			s.shows(".danger button", "Release by force")
			s.await(`/^59m/.test(document.querySelector(".state strong")?.textContent)`)
			s.shows(".state", "Held")
			s.quiet(f.address, "401")
		})
	}
}

// viewerOfOneLock is a user, by the token secret, who may do everything with the one lock of a key in the namespace shop.
func viewerOfOneLock(key string) *viewers {
	name := v1alpha1.FullKeyOf(key).ObjectName()
	verbs := []string{"get", "list", "watch", "create", "force-release"}
	allowed := make([]string, 0, len(verbs))
	for _, verb := range verbs {
		allowed = append(allowed, verb+" shop "+name)
	}
	return &viewers{users: map[string]string{"secret": "vera"}, deny: map[string][]string{"vera": verbs}, allow: map[string][]string{"vera": allowed}}
}
