package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const allLocks = "/v1/namespaces/payments/locks"

func keysOf(listed wire.Locks) []string {
	keys := []string{}
	for _, each := range listed.Locks {
		keys = append(keys, each.Key)
	}
	return keys
}

func TestReadsAreNeverBlocked(t *testing.T) {
	f := newFixture(t)
	f.acquire(report, `{"ttl_seconds":60,"reason":"monthly close","holder_ref":{"api_version":"v1","kind":"Pod","name":"worker","uid":"u-1"},"release_delay_seconds":1.5}`)
	got := f.do(http.MethodGet, report, "", "User", "bob").want(http.StatusOK)
	token, ttl, delay := int64(1), 60.0, 1.5
	want := wire.Lock{
		Namespace: "payments", Key: "billing:report", FencingToken: &token, Holder: "alice", Reason: "monthly close",
		HolderRef: &wire.HolderRef{APIVersion: "v1", Kind: "Pod", Name: "worker", UID: "u-1"}, ReleaseDelaySeconds: &delay, TTLSeconds: &ttl,
		AcquiredAt: "2026-03-15T10:30:00.000000Z", RenewedAt: "2026-03-15T10:30:00.000000Z", ExpiresAt: "2026-03-15T10:31:00.000000Z",
	}
	if diff := cmp.Diff(want, got.lock()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	head := f.do(http.MethodHead, report, "").want(http.StatusOK)
	if head.header.Get("ETag") != got.header.Get("ETag") || head.header.Get("Content-Length") != got.header.Get("Content-Length") {
		t.Errorf("HEAD %v, GET %v", head.header, got.header)
	}
	f.do(http.MethodHead, report+"2", "").want(http.StatusNotFound)
	f.clock.Step(time.Minute)
	f.do(http.MethodGet, report, "").want(http.StatusNotFound, "lock-not-found")
}

func TestWhatTheCallerHasAlreadyIsNotSentAgain(t *testing.T) {
	f := newFixture(t)
	token := f.acquire(report, ofSixty)
	for _, path := range []string{report, allLocks} {
		tag := f.do(http.MethodGet, path, "").want(http.StatusOK).header.Get("ETag")
		for _, known := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
			if got := f.do(http.MethodGet, path, "", "If-None-Match", known).want(http.StatusNotModified); got.body != "" || got.header.Get("ETag") != tag {
				t.Errorf("%s: %q, %s", path, got.body, got.header.Get("ETag"))
			}
		}
		f.do(http.MethodGet, path, "", "If-None-Match", `"x"`).want(http.StatusOK)
	}
	tag := f.do(http.MethodGet, allLocks, "").header.Get("ETag")
	f.clock.Step(time.Second)
	f.do(http.MethodPut, report, ofSixty, "X-Lock-Token", token).want(http.StatusOK)
	f.do(http.MethodGet, allLocks, "", "If-None-Match", tag).want(http.StatusOK)
}

func TestPages(t *testing.T) {
	for name, change := range map[string]func(*testfacade.Settings){
		"of a backend that has them":      func(*testfacade.Settings) {},
		"of a backend that lists at once": func(s *testfacade.Settings) { s.Locks = nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, change)
			want := []string{}
			for i := range 25 {
				key := fmt.Sprintf("a/%02d", i)
				f.acquire(allLocks+"/"+strings.ReplaceAll(key, "/", "%2F"), ofSixty, "User", []string{"alice", "bob"}[i%2])
				want = append(want, key)
			}
			f.acquire(allLocks+"/b", ofSixty)
			read := func(query string) (keys []string, pages int) {
				for next := ""; ; pages++ {
					page := decode[wire.Locks](f.do(http.MethodGet, allLocks+"?"+query+next, "").want(http.StatusOK))
					keys = append(keys, keysOf(page)...)
					if page.Continue == "" {
						return keys, pages + 1
					}
					next = "&continue=" + page.Continue
				}
			}
			keys, pages := read("limit=10&prefix=a%2F")
			slices.Sort(keys)
			if diff := cmp.Diff(want, keys); diff != "" || pages != 3 {
				t.Errorf("%d pages (-want +got):\n%s", pages, diff)
			}
			if keys, _ := read("limit=5&holder=bob"); len(keys) != 12 {
				t.Errorf("bob has %q", keys)
			}
			if keys, pages := read("limit=26"); len(keys) != 26 || pages != 1 {
				t.Errorf("%d locks on %d pages", len(keys), pages)
			}
			if keys, _ := read("prefix=c"); len(keys) != 0 {
				t.Errorf("listed %q", keys)
			}
			head := f.do(http.MethodHead, allLocks+"?limit=1", "").want(http.StatusOK)
			if head.header.Get("ETag") == "" {
				t.Error("no ETag")
			}
		})
	}
}

// expiredPages have lost where they were.
type expiredPages struct{ lock.Backend }

func (expiredPages) ListPage(context.Context, string, lock.PageRequest) (lock.Page, error) {
	return lock.Page{}, fmt.Errorf("list: %w", lock.ErrPageExpired)
}

func TestAListThatWasContinuedTooLate(t *testing.T) {
	f := newFixture(t, func(s *testfacade.Settings) { s.Locks = expiredPages{} })
	f.do(http.MethodGet, allLocks+"?continue=x", "").want(http.StatusGone, "page-expired")
}
