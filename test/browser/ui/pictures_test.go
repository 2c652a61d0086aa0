package ui_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// populate fills a façade as a cluster of a shop might be.
func populate(f *facade) {
	f.t.Helper()
	f.guards["deploy:checkout"] = []v1alpha1.Guard{{Group: "apps", Resource: "deployments", Name: "checkout"}, {Resource: "configmaps", Name: "checkout-settings"}}
	account := func(namespace, name string) string { return "system:serviceaccount:" + namespace + ":" + name }
	for round, worker := range []string{"worker-4", "worker-9", "worker-2", "worker-7"} {
		held := f.hold("payments", "billing:report", account("payments", worker), time.Minute, because("nightly report"), standingFor("Pod", worker+"-x2k9f"))
		pause(f.t, time.Duration(400+round*350)*time.Millisecond)
		f.release(held)
	}
	f.hold("payments", "billing:report", account("payments", "worker-5"), 4*time.Minute, because("nightly report"), standingFor("Job", "nightly-29384"))
	f.wait("payments", "billing:report", account("payments", "worker-2"), account("payments", "worker-9"), "alice@example.com", account("payments", "worker-4"), account("shop", "exporter"), account("payments", "worker-7"))
	f.hold("payments", "billing:close", "alice@example.com", time.Hour, because("monthly close of the books"))
	f.hold("payments", "ledger:compact", account("payments", "ledger"), 90*time.Second, standingFor("Pod", "ledger-0"))
	f.wait("payments", "ledger:compact", account("payments", "ledger"))
	f.hold("shop", "deploy:checkout", "bob@example.com", 20*time.Minute, because("release 4.18"))
	f.wait("shop", "deploy:checkout", "carol@example.com", account("ci", "deployer"))
	f.hold("shop", "index:rebuild", account("shop", "search"), 11*time.Second, because("new synonyms"), standingFor("Pod", "search-6c9d-hx2lp"))
	f.hold("shop", "cart:migrate", account("shop", "migrator"), 45*time.Second, standingFor("Job", "cart-v7"))
	f.hold("shop", "flag:black-friday", "carol@example.com", 8*time.Hour, because("change freeze"))
	f.hold("search", "crawl:europe", account("search", "crawler"), 30*time.Second, standingFor("Pod", "crawler-eu-1"))
	f.hold("search", "crawl:asia", account("search", "crawler"), 30*time.Second, standingFor("Pod", "crawler-as-0"))
	for i := range 9 {
		pause(f.t, 150*time.Millisecond) // So that the latest changes are not all of one moment.
		if i%3 == 2 {
			f.release(f.hold("shop", fmt.Sprintf("order:%d", 88410+i), account("shop", "checkout"), time.Minute))
		}
		if i == 4 {
			f.hold("search", "crawl:oceania", account("search", "crawler"), 700*time.Millisecond)
		}
		f.hold("media", fmt.Sprintf("transcode:%04d", 1200+i*7), account("media", "encoder"), time.Duration(40+i*25)*time.Second, standingFor("Pod", fmt.Sprintf("encoder-%d", i)))
	}
}

// The pictures of docs/page.md. "make pictures" writes them.
func TestPictures(t *testing.T) {
	f := newFacade(t, &viewers{users: map[string]string{"secret": "dana@example.com"}, deny: map[string][]string{}})
	s := open(t, f.url())
	s.enter("#token", "secret")
	s.click("button.main")
	s.shows(".link", "Live")
	populate(f)
	s.shows(".row", "crawl:asia")
	s.await(`document.querySelectorAll(".dots").length > 2`)
	pause(t, 3*time.Second) // So that the bars have run down a part.
	s.picture("page")
	s.do(scheme("dark"))
	s.click(`.lock[data-key="billing:report"] a`)
	s.shows(".waiters li", "alice@example.com")
	s.picture("page-lock-dark")
	s.do(scheme("light"))
	s.picture("page-lock")
	s.click("button.force")
	s.enter("#reason", "worker-5 lost its disk")
	s.shows("dialog", "worker-2")
	s.picture("page-force")
	s.click("dialog .buttons button")
	s.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateScale(2)))
	s.click("button.close")
	s.shows(".lock", "billing:report")
	s.picture("page-phone")
	s.quiet(f.address, "401")
}
