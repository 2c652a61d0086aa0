package rest

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // For the files of the documentation.
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/lock/problems"
)

// Where the documentation is. It needs no authentication: it tells nothing of the cluster.
const (
	documentPath = "/openapi.json"
	docsPath     = "/docs"
)

// openapi is the contract of the door.
//
//go:embed openapi.yaml
var openapi []byte

//go:embed docs.html.tmpl
var docsPage string

//go:embed docs.css
var docsStyle string

// document is the documentation as it is served.
type document struct {
	json, html []byte
	// policy permits the page its own style and nothing else.
	policy string
}

// newDocument returns the documentation of a door with these bounds.
func newDocument(maxTTL, maxWait time.Duration) (document, error) {
	var described map[string]any
	if err := yaml.Unmarshal(openapi, &described); err != nil {
		return document{}, fmt.Errorf("facade: openapi.yaml: %w", err)
	}
	for schema, most := range map[string]time.Duration{"TTLSeconds": maxTTL, "WaitSeconds": maxWait} {
		bounded, _ := member(described, "components", "schemas", schema).(map[string]any)
		bounded["maximum"] = most.Seconds()
	}
	text, err := json.Marshal(described)
	if err != nil {
		return document{}, fmt.Errorf("facade: openapi.yaml: %w", err)
	}
	page, err := template.New("docs").Parse(docsPage)
	if err != nil {
		return document{}, fmt.Errorf("facade: docs.html.tmpl: %w", err)
	}
	var html bytes.Buffer
	if err := page.Execute(&html, newDocsView(described)); err != nil {
		return document{}, fmt.Errorf("facade: docs.html.tmpl: %w", err)
	}
	style := sha256.Sum256([]byte(docsStyle))
	return document{
		json: text, html: html.Bytes(),
		policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(style[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}, nil
}

// member returns what is under the names, or nil.
func member(within any, names ...string) any {
	for _, name := range names {
		object, _ := within.(map[string]any)
		within = object[name]
	}
	return within
}

// docsView is what the page shows.
type docsView struct {
	Title, Description string
	Style              template.CSS
	Operations         []docsOperation
	Problems           []string
}

type docsOperation struct {
	Method, Path, Summary, Description string
	Answers                            []string
}

func newDocsView(described map[string]any) docsView {
	text := func(within any, names ...string) string {
		found, _ := member(within, names...).(string)
		return found
	}
	view := docsView{
		Title: text(described, "info", "title"), Description: text(described, "info", "description"),
		Style: template.CSS(docsStyle), //nolint:gosec // It is a file of this package.
	}
	paths, _ := described["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for _, method := range []string{"get", "head", "post", "put", "delete"} {
			operation, ok := member(paths[path], method).(map[string]any)
			if !ok {
				continue
			}
			answers, _ := operation["responses"].(map[string]any)
			view.Operations = append(view.Operations, docsOperation{
				Method: strings.ToUpper(method), Path: path, Summary: text(operation, "summary"), Description: text(operation, "description"),
				Answers: slices.Sorted(maps.Keys(answers)),
			})
		}
	}
	types, _ := member(described, "components", "schemas", "Problem", "properties", "type", "enum").([]any)
	for _, each := range types {
		name, _ := each.(string)
		view.Problems = append(view.Problems, name)
	}
	return view
}

// serveStatic serves a text that does not change. Policy is its Content-Security-Policy, or empty.
func (h *Handler) serveStatic(text []byte, contentType, policy string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Handler: h, request: r, writer: w, start: h.config.Clock.Now()}
		mediaType, _, _ := strings.Cut(contentType, ";")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			c.refuse(problems.New(problems.MethodNotAllowed, "The method must be one of GET, HEAD"))
		case !accepts(r.Header, mediaType):
			c.refuse(problems.New(problems.NotAcceptable, "The answer has the type "+mediaType))
		default:
			header := w.Header()
			header.Set("Content-Type", contentType)
			header.Set("Content-Length", strconv.Itoa(len(text)))
			header.Set("X-Content-Type-Options", "nosniff")
			header.Set("Cache-Control", "no-cache")
			if policy != "" {
				header.Set("Content-Security-Policy", policy)
			}
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write(text) // A client that has gone needs no answer.
		}
	})
}
