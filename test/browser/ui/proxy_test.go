package ui_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"forrst.dev/lock-operator/lock/problems"
)

// behindProxy returns the address of the page behind a proxy that changes requests, and may answer them.
func behindProxy(t *testing.T, f *facade, change func(http.Header), answer func(http.ResponseWriter, *http.Request) bool) (address string) {
	t.Helper()
	target, err := url.Parse("http://" + f.address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(request *httputil.ProxyRequest) {
		request.SetURL(target)
		request.Out.Host = request.In.Host // As a browser's check of the origin needs it.
		change(request.Out.Header)
	}}
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer == nil || !answer(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		served.CloseClientConnections()
		served.Close()
	})
	return strings.TrimPrefix(served.URL, "http://")
}

// A proxy that adds the token leaves nothing to enter, and the page never sees the token.
func TestAProxyAddsTheToken(t *testing.T) {
	f := newFacade(t, &viewers{users: map[string]string{"very-secret": "dana"}})
	f.hold("shop", "a", "alice", time.Hour)
	f.wait("shop", "a", "bob")
	address := behindProxy(t, f, func(header http.Header) { header.Set("Authorization", "Bearer very-secret") }, nil)
	s := open(t, "http://"+address+"/ui/")
	s.shows(".viewer summary", "dana")
	s.shows(".link", "Live")
	s.click(".viewer summary")
	s.shows(".verbs .yes", "take one from its holder")
	s.await(`!document.querySelector(".viewer button") && !document.querySelector("#token")`) // There is no token to forget.
	s.click(".viewer summary")
	s.click(".lock a")
	s.shows(".waiters li", "bob")
	f.hold("shop", "b", "carol", time.Hour)
	s.shows(".lock", "b")
	s.click(".danger .force")
	s.shows("dialog .outcome", "Your name, dana, and the reason go on record")
	s.enter("#reason", "it is stuck")
	s.click("dialog .force")
	s.shows(".notice", "Done")
	if strings.Contains(evaluate[string](s, `document.documentElement.outerHTML`), "very-secret") {
		t.Error("the token is in the page")
	}
	s.quiet(address)
}

// What the service tells of viewers and refusals has texts of users, too.
func TestNamesAndProblemsStayTexts(t *testing.T) {
	for _, attack := range attacks {
		f := newFacade(t, &viewers{users: map[string]string{"secret": attack}})
		f.hold("shop", "a", "alice", time.Hour)
		var refused string // The beginning of the path of what is refused.
		address := behindProxy(t, f, func(header http.Header) { header.Set("Authorization", "Bearer secret") }, func(w http.ResponseWriter, r *http.Request) bool {
			f.mu.Lock()
			isRefused := refused != "" && strings.HasPrefix(r.Method+" "+r.URL.Path, refused)
			f.mu.Unlock()
			if !isRefused {
				return false
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(map[string]any{
				"type": attack, "title": attack, "status": http.StatusForbidden, "detail": "refused " + attack,
				"right": problems.Right{Verb: attack, Resource: "resource " + attack, Namespace: "namespace " + attack},
			})
			return true
		})
		refuse := func(what string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			refused = what
		}
		s := open(t, "http://"+address+"/ui/#/namespaces/shop/locks/a")
		s.shows(".viewer summary", attack)
		s.click(".viewer summary")
		s.shows(".viewer div", "You are "+attack)
		s.click(".viewer summary")
		s.shows(".detail", "alice")
		s.click(".danger .force")
		s.shows("dialog .outcome", "Your name, "+attack+", and the reason")
		s.enter("#reason", "x")
		refuse("DELETE")
		s.click("dialog .force")
		s.shows("dialog [role=alert]", "refused "+attack)
		refuse("GET /v1/rights")
		s.do(chromedp.Reload())
		s.shows(".refused", "refused "+attack)
		s.shows(".refused", "resource "+attack)
		s.shows(".refused", "namespace "+attack)
		s.isSafe()
		s.quiet(address, "403")
	}
}
