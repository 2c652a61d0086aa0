package ui_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"forrst.dev/lock-operator/facade/ui"
)

func newPage(t *testing.T) http.Handler {
	t.Helper()
	page, err := ui.New()
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	page.Register(mux)
	return mux
}

func get(t *testing.T, page http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	for pair := range slices.Chunk(header, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	recorder := httptest.NewRecorder()
	page.ServeHTTP(recorder, request)
	return recorder
}

func TestThePage(t *testing.T) {
	page := newPage(t)
	for path, want := range map[string]string{
		"/ui/":           "text/html; charset=utf-8",
		"/ui/index.html": "text/html; charset=utf-8",
		"/ui/app.js":     "text/javascript; charset=utf-8",
		"/ui/style.css":  "text/css; charset=utf-8",
		"/ui/icon.svg":   "image/svg+xml",
		"/docs":          "text/html; charset=utf-8",
		"/ui/docs.js":    "text/javascript; charset=utf-8",
		"/ui/docs.css":   "text/css; charset=utf-8",
	} {
		got := get(t, page, path)
		if got.Code != http.StatusOK || got.Header().Get("Content-Type") != want || got.Body.Len() == 0 {
			t.Errorf("%s: %d %v", path, got.Code, got.Header())
		}
		if again := get(t, page, path, "If-None-Match", got.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
	for from, status := range map[string]int{"/ui": http.StatusPermanentRedirect, "/": http.StatusTemporaryRedirect} {
		if got := get(t, page, from); got.Code != status || got.Header().Get("Location") != "/ui/" {
			t.Errorf("%s: %d %v", from, got.Code, got.Header())
		}
	}
	for _, path := range []string{"/ui/other.js", "/ui/NOTICE.txt", "/ui/a/b"} {
		if got := get(t, page, path); got.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, got.Code)
		}
	}
}

func TestTheBrowserIsToldToRunNothingElse(t *testing.T) {
	page := newPage(t)
	for _, path := range []string{"/ui/", "/ui/app.js", "/ui/none", "/docs", "/ui/docs.js"} {
		header := get(t, page, path).Header()
		policy := header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: %s lacks %s", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") || strings.Contains(policy, "data:") {
			t.Errorf("%s: %s", path, policy)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if header.Get(name) != want {
				t.Errorf("%s: %s is %q", path, name, header.Get(name))
			}
		}
	}
}

// What the policy forbids must not be there, since it would not work.
func TestThePageHasNothingInline(t *testing.T) {
	for _, path := range []string{"/ui/", "/docs"} {
		html := get(t, newPage(t), path).Body.String()
		for _, forbidden := range []string{`<script>`, `<style`, ` style=`, `\son[a-z]+=`, `(src|href)="(https?:)?//`} {
			if found := regexp.MustCompile(forbidden).FindString(html); found != "" {
				t.Errorf("%s in %s", found, html)
			}
		}
	}
	styles := get(t, newPage(t), "/ui/docs.css").Body.String()
	if found := regexp.MustCompile(`url\(["']?data:.{0,20}`).FindString(styles); found != "" {
		t.Errorf("the style sheet of the documentation has pictures in itself: %s", found)
	}
	for _, picture := range regexp.MustCompile(`picture-\w+\.\w+`).FindAllString(styles, -1) {
		if got := get(t, newPage(t), "/ui/"+picture); got.Code != http.StatusOK || !strings.HasPrefix(got.Header().Get("Content-Type"), "image/") {
			t.Errorf("%s: %d %v", picture, got.Code, got.Header())
		}
	}
	script := get(t, newPage(t), "/ui/app.js").Body.String()
	for _, forbidden := range []string{"localStorage", "sessionStorage", "document.cookie", "indexedDB", "eval(", "new Function"} {
		if strings.Contains(script, forbidden) {
			t.Errorf("the script has %s", forbidden)
		}
	}
}

// Swagger UI shows the token of a caller in the commands that it makes of requests, and could keep it or ask another site.
func TestTheDocumentationKeepsAndShowsNoToken(t *testing.T) {
	source, err := os.ReadFile("../../web/src/docs.ts")
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range []string{
		"validatorUrl: null", "requestSnippetsEnabled: false", "plugins: [plainTexts, noCommands]",
		"const nothing = () => () => null;", "wrapComponents: { curl: nothing, RequestSnippets: nothing }",
	} {
		if !strings.Contains(string(source), option) {
			t.Errorf("the documentation lacks %s", option)
		}
	}
	if strings.Contains(string(source), "persistAuthorization") {
		t.Error("the documentation keeps tokens")
	}
	if !regexp.MustCompile(`curl:(\w+),RequestSnippets:(\w+)\}`).MatchString(get(t, newPage(t), "/ui/docs.js").Body.String()) {
		t.Error("the documentation is not built anew")
	}
}

// What the page is built from is known by its hash.
func TestPackagesArePinned(t *testing.T) {
	text, err := os.ReadFile("../../web/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var locked struct {
		Packages map[string]struct {
			Integrity string `json:"integrity"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(text, &locked); err != nil {
		t.Fatal(err)
	}
	if len(locked.Packages) < 2 {
		t.Error("no packages")
	}
	for name, each := range locked.Packages {
		if name != "" && !strings.HasPrefix(each.Integrity, "sha512-") {
			t.Errorf("%s has the hash %q", name, each.Integrity)
		}
	}
}
