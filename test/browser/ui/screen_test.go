package ui_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// patience has room for a slow machine.
const patience = 30 * time.Second

// screen is a page in a tab of its own.
type screen struct {
	t   *testing.T
	tab context.Context

	mu sync.Mutex
	// complaints are errors of scripts and of the policy.
	complaints []string
	// hosts are those that requests went to.
	hosts map[string]bool
}

// open opens the page at a fragment of its address. Options change the tab before.
func open(t *testing.T, url string, options ...chromedp.Action[chromedp.Void]) *screen {
	t.Helper()
	tab, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	s := &screen{t: t, tab: tab, hosts: map[string]bool{}}
	var listening sync.WaitGroup
	messages := chromedp.Console(tab)
	sent := chromedp.Events(tab, network.RequestWillBeSent)
	listening.Go(func() {
		for message := range messages { //nolint:errcheck // A message is no error of this program.
			switch string(message.Type) {
			case "error", "warning", string(chromedp.ConsoleException):
				s.mu.Lock()
				s.complaints = append(s.complaints, string(message.Type)+": "+message.Text)
				s.mu.Unlock()
			}
		}
	})
	listening.Go(func() {
		for request, err := range sent {
			if err != nil {
				return
			}
			s.mu.Lock()
			s.hosts[hostOf(request.Request.URL)] = true
			s.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		closeTab()
		listening.Wait()
	})
	s.do(append([]chromedp.Action[chromedp.Void]{chromedp.EmulateViewport(1440, 900)}, options...)...)
	s.do(chromedp.Navigate(url))
	return s
}

func hostOf(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// scheme chooses whether the user prefers light or dark.
func scheme(value string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}},
		})
		return err
	})
}

func (s *screen) do(steps ...chromedp.Action[chromedp.Void]) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.tab, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		s.t.Fatal(err)
	}
}

// evaluate returns the value of an expression, once it is settled.
func evaluate[T any](s *screen, expression string) T {
	s.t.Helper()
	value, err := tryEvaluate[T](s, expression)
	if err != nil {
		s.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

func tryEvaluate[T any](s *screen, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(s.tab, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// await waits until an expression is true.
func (s *screen) await(expression string) {
	s.t.Helper()
	for begun := time.Now(); ; pause(s.t, 20*time.Millisecond) {
		if evaluate[bool](s, "!!("+expression+")") {
			return
		}
		if time.Since(begun) > patience {
			s.t.Fatalf("never: %s\n%s", expression, evaluate[string](s, "document.body.innerText.slice(0, 3000)"))
		}
	}
}

// pause lets time pass for a browser, which has no clock to step.
func pause(t *testing.T, length time.Duration) {
	t.Helper()
	select {
	case <-time.After(length):
	case <-t.Context().Done():
	}
}

// shows waits until a part of the page has a text.
func (s *screen) shows(selector, text string) {
	s.t.Helper()
	s.await("[...document.querySelectorAll(" + quote(selector) + ")].some(e => e.textContent.includes(" + quote(text) + "))")
}

// hides waits until no such part has the text.
func (s *screen) hides(selector, text string) {
	s.t.Helper()
	s.await("![...document.querySelectorAll(" + quote(selector) + ")].some(e => e.textContent.includes(" + quote(text) + "))")
}

// click clicks the first such part of the page as soon as a user can. What arrives between a look at the page and the click can
// move the part: then the click does nothing, and is repeated.
func (s *screen) click(selector string) {
	s.t.Helper()
	for begun := time.Now(); ; pause(s.t, 20*time.Millisecond) {
		if place := evaluate[[]float64](s, placeOf(selector)); len(place) == 2 {
			s.do(chromedp.MouseClickXY(place[0], place[1]))
			// The page that a click leads to knows nothing of it, and what is evaluated while it is loaded fails.
			isHit, err := tryEvaluate[bool](s, "window.isHit !== false")
			if isHit || err != nil && strings.Contains(err.Error(), "target navigated") {
				return
			}
			if err != nil {
				s.t.Fatal(err)
			}
		}
		if time.Since(begun) > patience {
			s.t.Fatalf("%s cannot be clicked:\n%s", selector, evaluate[string](s, "document.body.innerText.slice(0, 3000)"))
		}
	}
}

// placeOf returns where the first such part can be clicked, or nothing while it cannot. The next click elsewhere does nothing.
func placeOf(selector string) string {
	return `(() => {
		const part = document.querySelector(` + quote(selector) + `);
		part?.scrollIntoView({block: "nearest"});
		const box = part?.getClientRects()[0];
		if (!box || part.disabled) return [];
		const place = [box.left + box.width / 2, box.top + box.height / 2];
		if (!part.contains(document.elementFromPoint(...place))) return [];
		window.isHit = false;
		addEventListener("click", (event) => {
			window.isHit = part.contains(event.target);
			if (!window.isHit) { event.preventDefault(); event.stopImmediatePropagation(); }
		}, {capture: true, once: true});
		return place;
	})()`
}

func (s *screen) enter(selector, text string) {
	s.t.Helper()
	s.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// quiet fails if a script failed or the policy had to forbid something, or if a request went elsewhere.
func (s *screen) quiet(host string, expected ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
complaints:
	for _, complaint := range s.complaints {
		for _, each := range expected {
			if strings.Contains(complaint, each) {
				continue complaints
			}
		}
		s.t.Errorf("the browser complains: %s", complaint)
	}
	for asked := range s.hosts {
		if asked != host {
			s.t.Errorf("a request went to %s", asked)
		}
	}
}

// picture writes what is on the screen, if pictures are wanted.
func (s *screen) picture(name string) {
	s.t.Helper()
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	ctx, cancel := context.WithTimeout(s.tab, patience)
	defer cancel()
	image, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(folder+"/"+name+".png", image, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(quoted)
}
