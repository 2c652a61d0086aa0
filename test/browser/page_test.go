package browser_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/facade/rest/wire"
)

// patience has room for a slow machine.
const patience = 30 * time.Second

// startBrowser runs Chromium until the suite ends.
func startBrowser(program string) context.Context {
	GinkgoHelper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program),
		chromedp.NoSandbox, // Which root may not have. The pages are the façade's own.
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	DeferCleanup(stop)
	browser, end := chromedp.NewContext(allocator)
	DeferCleanup(end)
	Expect(chromedp.Do(browser)).To(Succeed()) // It starts.
	return browser
}

// script opens the streams of a page as a program in it would, and keeps what they tell.
const script = `
const told = [];
function follow(name, path) {
  const source = new EventSource(path);
  for (const type of ["sync", "acquired", "handed-off", "renewed", "changed", "released", "expired"])
    source.addEventListener(type, event =>
      told.push({stream: name, type: type, id: event.lastEventId, at: Date.now(), data: JSON.parse(event.data)}));
}
`

// told is one event as the page has received it.
type told struct {
	Stream string `json:"stream"`
	Type   string `json:"type"`
	// ID is the id that the browser would go on from.
	ID string `json:"id"`
	// At is when it arrived, in milliseconds since 1970.
	At   int64 `json:"at"`
	Data struct {
		wire.Lock
		wire.Locks
	} `json:"data"`
}

// page is a page of the façade's origin with streams.
type page struct {
	tab context.Context
	// read is how many events of each stream were taken.
	read map[string]int

	mu sync.Mutex
	// resumed are the Last-Event-IDs that the browser has sent.
	resumed []string
}

// openPage opens a page with the streams, by name and path.
func openPage(streams map[string]string) *page {
	GinkgoHelper()
	tab, closeTab := chromedp.NewContext(browser)
	p := &page{tab: tab, read: map[string]int{}}
	sent := chromedp.Events(tab, network.RequestWillBeSentExtraInfo)
	var listening sync.WaitGroup
	listening.Go(func() {
		for request, err := range sent {
			if err != nil {
				return // The page is closed.
			}
			if id, ok := request.Headers["Last-Event-ID"].(string); ok {
				p.mu.Lock()
				p.resumed = append(p.resumed, id)
				p.mu.Unlock()
			}
		}
	})
	DeferCleanup(func() {
		closeTab()
		listening.Wait()
	})
	// Unlike a page, the document opens no streams of its own.
	Expect(chromedp.Do(tab, chromedp.Navigate(served.url()+"/openapi.json"), chromedp.Evaluate[chromedp.Void](script))).To(Succeed())
	for name, path := range streams {
		Expect(chromedp.Do(tab, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("follow(%q, %q)", name, path)))).To(Succeed())
	}
	return p
}

// events returns all events of a stream so far.
func (p *page) events(stream string) []told {
	GinkgoHelper()
	all, err := chromedp.Run(p.tab, chromedp.Evaluate[[]told]("told"))
	Expect(err).NotTo(HaveOccurred())
	var own []told
	for _, each := range all {
		if each.Stream == stream {
			own = append(own, each)
		}
	}
	return own
}

// next returns the next event of a stream.
func (p *page) next(stream string) told {
	GinkgoHelper()
	var events []told
	Eventually(func() int {
		events = p.events(stream)
		return len(events)
	}).WithTimeout(patience).WithPolling(20 * time.Millisecond).Should(BeNumerically(">", p.read[stream]))
	p.read[stream]++
	return events[p.read[stream]-1]
}

// held returns the keys of the locks that are held, as a program in the page concludes from its events.
func (p *page) held() []string {
	GinkgoHelper()
	held := map[string]bool{}
	for _, event := range p.events("namespace") {
		switch event.Type {
		case "sync":
			clear(held)
			for _, each := range event.Data.Locks.Locks {
				held[each.Key] = true
			}
		case "released", "expired":
			delete(held, event.Data.Key)
		default:
			held[event.Data.Key] = true
		}
	}
	return slices.Collect(maps.Keys(held))
}

// lastEventIDs returns the Last-Event-IDs that the browser has sent.
func (p *page) lastEventIDs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.resumed)
}
