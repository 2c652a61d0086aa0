package ui_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// A service may tell of the first of a line alone. The page says that there are more, and how many if it knows that.
func TestALineThatIsNotToldInFull(t *testing.T) {
	for name, test := range map[string]struct {
		viewer              *viewers
		count, left, behind string
	}{
		"counted":     {&viewers{users: map[string]string{"secret": "dana"}}, "5", "… and 3 behind them", "ahead of 4 more"},
		"not counted": {viewerOfOneLock("a"), "2+", "… and more behind them", "ahead of at least 1 more"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacade(t, test.viewer)
			f.listed = 2
			f.hold("shop", "a", "alice", time.Hour)
			f.wait("shop", "a", "bob", "carol", "dave", "erin", "frank")
			s := open(t, f.url()+"#/namespaces/shop/locks/a")
			signIn(s, "secret")
			s.shows(".waiters p", test.left)
			s.await(`document.querySelector(".waiters .count").textContent === ` + quote(test.count) + ` && document.querySelectorAll(".waiters li").length === 2`)
			s.click(".danger .force")
			s.shows("dialog .outcome", "bob gets the lock next, "+test.behind)
			s.quiet(f.address, "401")
		})
	}
}

// The order of a line cannot be understood without the priorities. Most callers have none.
func TestAWaiterIsShownWithItsPriority(t *testing.T) {
	f := newFacade(t, nil)
	f.hold("shop", "a", "alice", time.Hour)
	f.wait("shop", "a", "bob", "carol")
	f.waiters[0].Priority = 7
	s := open(t, f.url()+"#/namespaces/shop/locks/a")
	s.shows(".waiters li:first-child small", "through REST · priority 7")
	s.shows(".waiters li:last-child", "carol")
	s.hides(".waiters li:last-child", "priority")
}

// A forced release that is under way can be neither taken back nor taken for one of another lock.
func TestTheOutcomeOfAForcedReleaseStaysWithItsLock(t *testing.T) {
	for name, answered := range map[string]struct {
		isLost bool
		told   string
	}{
		"done":             {told: "Done"},
		"nothing is known": {isLost: true, told: "The service did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacade(t, nil)
			f.hold("shop", "a", "alice", time.Hour)
			f.hold("shop", "b", "bob", time.Hour)
			goOn := make(chan struct{})
			answer := sync.OnceFunc(func() { close(goOn) })
			address := behindProxy(t, f, passOn, func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodDelete {
					<-goOn
					if answered.isLost {
						panic(http.ErrAbortHandler)
					}
				}
				return false
			})
			t.Cleanup(answer)
			s := open(t, "http://"+address+"/ui/#/namespaces/shop/locks/a")
			s.shows(".danger button", "Release")
			s.click(".danger .force")
			s.enter("#reason", "it is stuck")
			s.click("dialog .force")
			s.shows("dialog .force", "Releasing…")
			s.await(`[...document.querySelectorAll("dialog .buttons button")].every(e => e.disabled)`)
			for range 3 { // The second one closes a dialog whatever its page says.
				s.do(chromedp.KeyEvent(kb.Escape))
			}
			s.await(`document.querySelector("dialog").open`)
			evaluate[bool](s, `(location.hash = "#/namespaces/shop/locks/b", true)`)
			s.shows(".detail h2", "b")
			s.await(`!document.querySelector("dialog")`)
			answer()
			s.shows(".late", "The forced release of a in shop: "+answered.told)
			s.await(`!document.querySelector(".detail .notice")`)
			s.shows(".facts", "bob")
			s.click(".late button")
			s.hides(".late", answered.told)
			s.quiet(address, "ERR_")
		})
	}
}

// What the viewer may do is read until it is told, and again when it may have changed.
func TestRightsAreReadAgain(t *testing.T) {
	f := newFacade(t, nil)
	f.hold("shop", "a", "alice", time.Hour)
	f.wait("shop", "a", "bob")
	var mu sync.Mutex
	failures, mayForce := 2, true
	address := behindProxy(t, f, passOn, func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == http.MethodDelete && !mayForce:
			problem(w, http.StatusForbidden, "You may not")
		case r.URL.Path != "/v1/rights" || !r.URL.Query().Has("key"):
			return false
		case failures > 0:
			failures--
			problem(w, http.StatusServiceUnavailable, "Not now")
		default:
			verbs := []string{"get", "list", "watch"}
			if mayForce {
				verbs = append(verbs, "force-release")
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"user": "dana", "is_authenticated": true, "verbs": verbs})
		}
		return true
	})
	allow := func(isAllowed bool) {
		mu.Lock()
		defer mu.Unlock()
		mayForce = isAllowed
	}
	s := open(t, "http://"+address+"/ui/#/namespaces/shop/locks/a")
	s.shows(".waiters li", "bob")
	s.shows(".danger button", "Release by force")
	allow(false)
	s.click(".danger .force")
	s.enter("#reason", "it is stuck")
	s.click("dialog .force")
	s.shows("dialog [role=alert]", "You may not")
	s.shows(".danger", "it takes the verb force-release")
	s.do(chromedp.KeyEvent(kb.Escape))
	allow(true)
	f.stop()
	s.shows(".link", "trying again")
	f.start()
	s.shows(".danger button", "Release by force")
	s.quiet(address, "503", "502", "403", "ERR_")
}

// A browser takes these keys for steps in a path, and would ask about other things.
func TestKeysThatAreSteps(t *testing.T) {
	f := newFacade(t, nil)
	for _, key := range []string{".", ".."} {
		f.hold("shop", key, "alice", time.Hour)
		f.wait("shop", key, "bob", "carol")
		f.wait("shop", "other", "dave")
		s := open(t, f.url()+"#/namespaces/shop/locks/"+key)
		s.await(`document.querySelector(".detail h2")?.textContent === ` + quote(key))
		s.shows(".facts", "alice")
		s.shows(".waiters h3", "2")
		s.shows(".danger", "A browser cannot send a request about this key")
		s.await(`!document.querySelector(".danger button")`)
		s.shows(".commands code", "kubectl lock who "+key+" -n shop")
		s.quiet(f.address)
	}
	for _, path := range f.requested() {
		if strings.Contains(path, "/waiters") {
			t.Errorf("asked for %s", path)
		}
	}
	viewer := newFacade(t, viewerOfOneLock(".."))
	viewer.hold("shop", "..", "alice", time.Hour)
	s := open(t, viewer.url()+"#/namespaces/shop/locks/..")
	signIn(s, "secret")
	s.shows(".refused", "A browser cannot send a request about the key ..")
	s.quiet(viewer.address, "401")
}

func TestALockOfANamespaceThatIsNotServed(t *testing.T) {
	f := newFacade(t, nil)
	s := open(t, f.url()+"#/namespaces/other/locks/a")
	s.shows(".state", "other")
	s.shows(".state", "Not known")
	s.hides(".state", "No caller holds this lock.")
	evaluate[bool](s, `(location.hash = "#/namespaces/shop/locks/a", true)`)
	s.shows(".state", "No caller holds this lock.")
	s.quiet(f.address, "404")
}

// Without the number of its grant, a forced release could hit another one.
func TestALockThatIsBeingDeletedIsNotReleased(t *testing.T) {
	f := newFacade(t, nil)
	f.deleting["a"] = true
	f.hold("shop", "a", "alice", time.Hour)
	s := open(t, f.url()+"#/namespaces/shop/locks/a")
	s.shows(".danger", "The lock is being deleted already")
	s.await(`document.querySelector(".danger button").disabled`)
	s.quiet(f.address)
}

// A waiter that gets the lock in the write that ends the grant before is told as such.
func TestAHandOff(t *testing.T) {
	f := newFacade(t, nil)
	held := f.hold("shop", "a", "alice", time.Hour)
	s := open(t, f.url())
	s.shows(".lock", "a")
	granted := make(chan error, 1)
	go func() {
		_, err := f.Acquire(t.Context(), "shop", lock.Request{Acquisition: rules.Acquisition{Key: "a", Holder: "bob", TTL: time.Hour}, Wait: time.Hour})
		granted <- err
	}()
	for f.Waiting("shop", held.Spec.FullKey()) == 0 {
		pause(t, time.Millisecond)
	}
	f.release(held)
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	s.shows(".activity li.handed-off", "handed on")
	s.shows(".activity li.handed-off", "to bob")
	s.click(".lock a")
	s.shows(".timeline li:nth-child(1)", "bob")
	s.shows(".timeline li:nth-child(1)", "holds it")
	s.shows(".timeline li:nth-child(2)", "alice")
	s.shows(".timeline li:nth-child(2)", "handed off after")
	s.quiet(f.address)
}

// A key that is pressed as soon as the dialog can be read is for the dialog.
func TestTheDialogOfAForcedReleaseOpensAtOnce(t *testing.T) {
	f := newFacade(t, nil)
	f.hold("shop", "a", "alice", time.Hour)
	s := open(t, f.url()+"#/namespaces/shop/locks/a")
	s.shows(".danger button", "Release by force")
	evaluate[bool](s, `(window.wasOpen = new Promise(tell => new MutationObserver(() => {
		const dialog = document.querySelector("dialog");
		if (dialog) tell(dialog.open);
	}).observe(document.body, { childList: true, subtree: true })), true)`)
	s.click(".danger .force")
	if !evaluate[bool](s, "window.wasOpen") {
		t.Error("the dialog is in the document, but not open")
	}
	s.quiet(f.address)
}

// A forced release has other consequences for a Job and for guarded objects.
// An address that changes as soon as the page runs, before it is on the screen, is the one that is shown.
func TestAnAddressThatChangesAtOnceIsShown(t *testing.T) {
	f := newFacade(t, nil)
	f.hold("shop", "report", "alice", time.Hour)
	s := open(t, f.url(), beforeLoad(`document.addEventListener("DOMContentLoaded", () => { location.hash = "#/namespaces/shop/locks/report"; })`))
	s.shows(".detail h2", "report")
}

func TestWhatAForcedReleaseDoes(t *testing.T) {
	f := newFacade(t, nil)
	const job, guard, guarded = "it is suspended, its Pods are deleted, and it queues again", "the guarded object again", "the guarded objects again"
	f.guards["one"] = []v1alpha1.Guard{{Resource: "configmaps", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "billing"}}}}
	f.guards["two"] = []v1alpha1.Guard{{Resource: "secrets"}, {Group: "apps", Resource: "deployments", Name: "billing"}}
	f.hold("shop", "none", "alice", time.Hour, standingFor("Pod", "worker-1"))
	f.hold("shop", "one", "alice", time.Hour, standingFor("Job", "nightly"))
	f.hold("shop", "two", "alice", time.Hour)
	s := open(t, f.url())
	for key, want := range map[string]struct{ guards, outcome, absent []string }{
		"none": {absent: []string{job, guard, guarded}},
		"one":  {guards: []string{"configmaps with app=billing"}, outcome: []string{job, guard}, absent: []string{guarded}},
		"two":  {guards: []string{"all secrets", "deployments.apps/billing"}, outcome: []string{guarded}, absent: []string{job, guard}},
	} {
		evaluate[bool](s, fmt.Sprintf(`(location.hash = "#/namespaces/shop/locks/%s", true)`, key))
		s.shows(".detail h2", key)
		for _, each := range want.guards {
			s.shows(".facts li", each)
		}
		s.shows(".danger button", "Release by force")
		s.click(".danger .force")
		s.shows("dialog h2", key)
		for _, each := range want.outcome {
			s.shows("dialog .outcome li", each)
		}
		for _, each := range want.absent {
			s.hides("dialog .outcome li", each)
		}
		s.do(chromedp.KeyEvent(kb.Escape))
		s.await(`!document.querySelector("dialog")`)
	}
	s.quiet(f.address)
}
