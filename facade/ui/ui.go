// Package ui serves the page that shows the locks live, and the one that shows the OpenAPI document of the REST door.
// The pages are programs for the browser that are built from web/ and embedded here; they know nothing of the cluster,
// and ask the REST door like any other client.
package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"forrst.dev/lock-operator/facade/server"
)

// Where the page with the locks is, and the one with the document.
const (
	Path     = "/ui/"
	DocsPath = "/docs"
)

// policy permits the pages their own scripts, styles and pictures, and requests to their own origin. The browser also
// refuses to make markup of text (Trusted Types).
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

//go:embed assets
var embedded embed.FS

// contentTypes are those of the assets. Others are not served.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
	".png":  "image/png",
	".jpeg": "image/jpeg",
}

// asset is a file of the pages as it is served.
type asset struct {
	text              []byte
	contentType, etag string
}

// Page has the pages. It is a door that needs no credentials: what it serves is the same everywhere. It implements [server.Door] and
// is safe for concurrent use.
type Page struct{ assets map[string]asset }

var _ server.Door = (*Page)(nil)

// New returns the pages.
func New() (*Page, error) {
	p := &Page{assets: map[string]asset{}}
	files, err := embedded.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := file.Name()
		kind, isServed := contentTypes[name[strings.LastIndexByte(name, '.'):]]
		if !isServed {
			continue
		}
		text, err := fs.ReadFile(embedded, "assets/"+name)
		if err != nil {
			return nil, err
		}
		hash := sha256.Sum256(text)
		p.assets[name] = asset{text, kind, `"` + base64.RawURLEncoding.EncodeToString(hash[:16]) + `"`}
	}
	return p, nil
}

// Register implements [server.Door].
func (p *Page) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+Path+"{$}", func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, "index.html") })
	mux.HandleFunc("GET "+DocsPath, func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, "docs.html") })
	mux.HandleFunc("GET "+Path+"{file}", func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, r.PathValue("file")) })
	for from, status := range map[string]int{"/ui": http.StatusPermanentRedirect, "/{$}": http.StatusTemporaryRedirect} {
		mux.HandleFunc("GET "+from, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, Path, status) })
	}
}

func (p *Page) serve(w http.ResponseWriter, r *http.Request, name string) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Embedder-Policy", "require-corp")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	found, ok := p.assets[name]
	if !ok {
		http.Error(w, "There is no such file of the page", http.StatusNotFound)
		return
	}
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", found.etag)
	if r.Header.Get("If-None-Match") == found.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", found.contentType)
	header.Set("Content-Length", strconv.Itoa(len(found.text)))
	server.BeginAnswer(w, r)
	_, _ = w.Write(found.text) // A client that has gone needs no answer.
}
