package ui_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func (s *screen) press(keys string) { s.t.Helper(); s.do(chromedp.KeyEvent(keys)) }

// tabTo goes to a part of the page with the key Tab alone.
func (s *screen) tabTo(selector string) {
	s.t.Helper()
	for range 60 {
		if evaluate[bool](s, "document.activeElement.matches("+quote(selector)+")") {
			return
		}
		s.press(kb.Tab)
	}
	s.t.Fatalf("the key Tab does not lead to %s", selector)
}

func TestTheKeyboard(t *testing.T) {
	f := newFacade(t, nil)
	for i := range 200 {
		f.hold("shop", fmt.Sprintf("key:%03d", i), "alice", time.Hour)
	}
	s := open(t, f.url())
	s.shows(".lock", "key:000")
	focused := `document.activeElement?.closest(".lock")?.dataset.key`
	evaluate[bool](s, `document.querySelector(".by").focus() || true`)
	s.press(kb.Tab + kb.Tab)
	s.await(focused + ` === "key:000"`)
	s.press(kb.ArrowDown + kb.ArrowDown)
	s.await(focused + ` === "key:002"`)
	s.press(kb.End)
	s.await(focused + ` === "key:199"`)
	s.press(kb.Enter)
	s.shows(".detail h2", "key:199")
	s.await(`document.activeElement?.tagName === "H2"`)
	s.press(kb.Escape)
	s.await(`!document.querySelector(".detail")`)
	s.quiet(f.address)
}

// A lock is taken from its holder without a mouse, from the token to the end.
func TestAForcedReleaseByKeyboard(t *testing.T) {
	f := newFacade(t, &viewers{users: map[string]string{"secret": "dana"}})
	f.hold("shop", "a", "alice", time.Hour)
	f.wait("shop", "a", "bob")
	s := open(t, f.url()+"#/namespaces/shop/locks/a")
	s.shows(".refused", "Who are you?")
	s.tabTo("#token")
	s.press("secret" + kb.Enter)
	s.shows(".waiters li", "bob")
	s.await(`document.querySelector(".danger .force")`)

	s.tabTo(".danger .force")
	for _, leave := range []func(){
		func() { s.press(kb.Escape) },
		func() { s.tabTo("dialog .buttons button:first-child"); s.press(kb.Enter) },
	} {
		s.press(kb.Enter)
		s.await(`document.activeElement.id === "reason"`)
		s.press("it is not stuck")
		for range 12 { // The key leads to nothing behind the dialog.
			s.press(kb.Tab)
			if where := evaluate[string](s, `document.activeElement === document.body || document.activeElement.closest("dialog") ? "" : document.activeElement.outerHTML`); where != "" {
				t.Fatalf("the key Tab leads out of the dialog to %s", where)
			}
		}
		leave()
		s.await(`!document.querySelector("dialog")`)
		s.await(`document.activeElement.matches(".danger .force")`)
		s.shows(".detail h2", "a")
	}
	if left := f.All(); len(left) != 1 {
		t.Fatalf("%d locks are left", len(left))
	}

	s.press(kb.Enter)
	s.await(`document.activeElement.id === "reason" && !document.activeElement.value`)
	s.press("it is stuck")
	s.tabTo("dialog .buttons .force")
	s.press(kb.Enter)
	s.shows(".notice", "Done")
	s.await(`document.activeElement.tagName === "H2"`)
	if left := f.All(); len(left) != 0 {
		t.Errorf("%d locks are left", len(left))
	}
	s.quiet(f.address, "401")
}

// pasted returns what the clipboard has, as the search field takes it.
func (s *screen) pasted() string {
	s.t.Helper()
	evaluate[bool](s, `(() => { const e = document.querySelector("#search"); e.focus(); e.value = ""; return true; })()`)
	s.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kb.KeyRawDown, Key: "v", Modifiers: 2, Commands: []string{"paste"}})
		return err
	}))
	s.await(`document.querySelector("#search").value`)
	return evaluate[string](s, `document.querySelector("#search").value`)
}

// Commands are copied: by the clipboard of a page that has TLS or is local; in an older way by others; and where a
// browser allows neither, they are selected.
func TestCommandsAreCopied(t *testing.T) {
	f := newFacade(t, nil)
	const (
		noClipboard = `Object.defineProperty(Navigator.prototype, "clipboard", {get: () => undefined});`
	)
	for name, test := range map[string]struct{ script, want string }{
		"by the clipboard":  {"", "Copied"},
		"without clipboard": {noClipboard, "Copied"},
		"not at all":        {noClipboard + `Document.prototype.execCommand = () => false;`, "Selected"},
	} {
		t.Run(name, func(t *testing.T) {
			key := "key of " + name
			f.hold("shop", key, "alice", time.Hour)
			command := "kubectl lock who '" + key + "' -n shop"
			s := open(t, f.url()+"#/namespaces/shop/locks/"+key, beforeLoad(test.script))
			s.shows(".commands code", command)
			// What the button says lasts for a moment, which a busy machine may miss.
			evaluate[bool](s, `(told => {
				window.told = [];
				new MutationObserver(() => window.told.push(told.querySelector("button").textContent + ", " + told.querySelector("[role=status]").textContent))
					.observe(told, {childList: true, characterData: true, subtree: true});
				return true;
			})(document.querySelector(".commands .command:nth-of-type(1)"))`)
			// Parts above that come late move the button away from the pointer.
			begun := time.Now()
			for isTold := false; !isTold; pause(t, 500*time.Millisecond) {
				if time.Since(begun) > patience {
					t.Fatalf("the button never says %q", test.want)
				}
				s.click(".commands .command:nth-of-type(1) button")
				isTold = evaluate[bool](s, "window.told.includes("+quote(test.want+", "+test.want)+")")
			}
			if test.want == "Selected" {
				s.await("getSelection().toString() === " + quote(command))
			} else if got := s.pasted(); got != command {
				t.Errorf("the clipboard has %q", got)
			}
			s.shows(".commands .command:nth-of-type(1) button", "Copy")
			s.quiet(f.address)
		})
	}
}
