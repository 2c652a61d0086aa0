package ui_test

import "testing"

func TestTheDocumentationBeginsWithOneLock(t *testing.T) {
	f := newFacade(t, nil)
	s := open(t, "http://"+f.address+"/docs")
	s.shows(".opblock", "Read the lock")
	s.await(`[...document.querySelectorAll(".opblock")].slice(0, 4).map(e => e.id).join() ===
		"operations-lock-acquire,operations-lock-renew,operations-lock-release,operations-lock-read"`)
	s.shows(".info .description", "A lock is a resource under its key.")
	s.shows("#operations-lock-acquire .opblock-section-request-body", `"reason": "rollout"`)
	s.shows("#operations-lock-acquire .response", `"lock_token": "lock_`)
	s.click("#operations-lock-read .opblock-summary-control")
	s.shows("#operations-lock-read .response", `"holder": "alice"`)
	s.quiet(f.address)
}
