package rest

import (
	_ "embed" // For the document.
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/lock/problems"
)

// documentPath is where the document is. It needs no authentication: it tells nothing of the cluster.
const documentPath = "/openapi.json"

// openapi is the contract of the door.
//
//go:embed openapi.yaml
var openapi []byte

// newDocument returns the contract of a door with these bounds, as it is served.
func newDocument(maxTTL, maxWait time.Duration) ([]byte, error) {
	var described map[string]any
	if err := yaml.Unmarshal(openapi, &described); err != nil {
		return nil, fmt.Errorf("facade: openapi.yaml: %w", err)
	}
	for schema, most := range map[string]time.Duration{"TTLSeconds": maxTTL, "WaitSeconds": maxWait} {
		if err := unstructured.SetNestedField(described, most.Seconds(), "components", "schemas", schema, "maximum"); err != nil {
			return nil, fmt.Errorf("facade: openapi.yaml: %w", err)
		}
	}
	text, err := json.Marshal(described)
	if err != nil {
		return nil, fmt.Errorf("facade: openapi.yaml: %w", err)
	}
	return text, nil
}

func (h *Handler) serveDocument(w http.ResponseWriter, r *http.Request) {
	c := &call{Handler: h}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		h.calls.Refuse(w, r, &c.Call, c, problems.New(problems.MethodNotAllowed, "The method must be one of GET, HEAD"))
	case !accepts(r.Header, jsonType):
		h.calls.Refuse(w, r, &c.Call, c, problems.New(problems.NotAcceptable, "The answer has the type "+jsonType))
	default:
		header := w.Header()
		header.Set("Content-Type", jsonType)
		header.Set("Content-Length", strconv.Itoa(len(h.document)))
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-cache")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(h.document) // A client that has gone needs no answer.
	}
}
