package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// contract judges requests and answers by the document that the door serves.
type contract struct {
	document *openapi3.T
	// schemas are those of the document's components. The validator of requests and answers would compile
	// one for each answer.
	schemas map[string]*jsonschema.Schema
}

func newContract(text []byte) (*contract, error) {
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	const name = "openapi.json"
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(name, parsed); err != nil {
		return nil, err
	}
	c := &contract{document, map[string]*jsonschema.Schema{}}
	for component := range document.Components.Schemas {
		if c.schemas[component], err = compiler.Compile(name + schemaPrefix + component); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// schemaPrefix begins a reference to a schema of the components.
const schemaPrefix = "#/components/schemas/"

// route returns what the document says about a request, nil if it has no such path or method.
func (c *contract) route(r *http.Request) (*routers.Route, map[string]string) {
	segments := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for path, item := range c.document.Paths.Map() {
		names := strings.Split(strings.TrimPrefix(path, "/"), "/")
		operation := item.GetOperation(r.Method)
		if len(names) != len(segments) || operation == nil {
			continue
		}
		parameters, matches := map[string]string{}, true
		for i, name := range names {
			if segment, err := url.PathUnescape(segments[i]); strings.HasPrefix(name, "{") && err == nil && segment != "" {
				parameters[strings.Trim(name, "{}")] = segment
			} else {
				matches = matches && name == segments[i]
			}
		}
		if matches {
			return &routers.Route{Spec: c.document, Path: path, PathItem: item, Method: r.Method, Operation: operation}, parameters
		}
	}
	return nil, nil
}

// check returns what is wrong with an answer by the document: a request that is invalid by it must be
// refused, and each answer must be one that it names.
func (c *contract) check(r *http.Request, body []byte, status int, header http.Header, answer []byte) error {
	route, parameters := c.route(r)
	if route == nil && r.Method != http.MethodHead && len(answer) == 0 {
		return fmt.Errorf("status %d has no body", status)
	}
	if route == nil {
		return c.checkProblem(status, header, answer)
	}
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	options := &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}
	request := &openapi3filter.RequestValidationInput{Request: again, PathParams: parameters, Route: route, Options: options}
	if status < http.StatusBadRequest {
		if err := openapi3filter.ValidateRequest(r.Context(), request); err != nil {
			return fmt.Errorf("the request was accepted, but is invalid: %w", err)
		}
	}
	response := &openapi3filter.ResponseValidationInput{RequestValidationInput: request, Status: status, Header: header, Options: options}
	if header.Get("Content-Type") == "text/event-stream" || r.Method == http.MethodHead || len(answer) == 0 {
		options.ExcludeResponseBody = true
	}
	if schema := schemaOf(route.Operation, status, header.Get("Content-Type")); schema != "" && !options.ExcludeResponseBody {
		options.ExcludeResponseBody = true
		if err := c.checkSchema(schema, answer); err != nil {
			return fmt.Errorf("the answer is invalid: %w", err)
		}
	}
	response.SetBodyBytes(answer)
	if err := openapi3filter.ValidateResponse(r.Context(), response); err != nil {
		return fmt.Errorf("the answer is invalid: %w", err)
	}
	if r.Method == http.MethodHead {
		return nil
	}
	return c.checkBody(status, header, answer)
}

// schemaOf returns the component that describes an answer, empty if none does.
func schemaOf(operation *openapi3.Operation, status int, contentType string) string {
	response := operation.Responses.Status(status)
	if response == nil {
		return ""
	}
	media := response.Value.Content.Get(contentType)
	if media == nil {
		return ""
	}
	name, _ := strings.CutPrefix(media.Schema.Ref, schemaPrefix)
	return name
}

// checkBody checks what the document cannot say of the body of an answer to any method but HEAD.
func (c *contract) checkBody(status int, header http.Header, answer []byte) error {
	if len(answer) == 0 && status != http.StatusNoContent && status != http.StatusNotModified {
		return fmt.Errorf("status %d has no body", status)
	}
	if status >= http.StatusBadRequest {
		return c.checkProblem(status, header, answer)
	}
	return nil
}

func (c *contract) checkProblem(status int, header http.Header, answer []byte) error {
	if header.Get("Content-Type") != "application/problem+json" {
		return fmt.Errorf("status %d with the type %q: %s", status, header.Get("Content-Type"), answer)
	}
	if len(answer) == 0 {
		return nil // The answer to HEAD.
	}
	if err := c.checkSchema("Problem", answer); err != nil {
		return err
	}
	var problem struct {
		Status int `json:"status"`
	}
	if err := json.Unmarshal(answer, &problem); err != nil || problem.Status != status {
		return fmt.Errorf("status %d has the problem %s, %w", status, answer, err)
	}
	return nil
}

// checkSchema checks a text by a schema of the document.
func (c *contract) checkSchema(name string, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if err := c.schemas[name].Validate(value); err != nil {
		return fmt.Errorf("no %s: %w", name, err)
	}
	return nil
}

// checkEvents checks a stream, which may end within an event.
func (c *contract) checkEvents(text string) error {
	for {
		event, rest, isWhole := strings.Cut(text, "\n\n")
		if !isWhole {
			return nil
		}
		text = rest
		fields := map[string]string{}
		for line := range strings.SplitSeq(event, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			if fields[name] != "" {
				return fmt.Errorf("the event has the field %q twice: %s", name, event)
			}
			fields[name] = value
		}
		schema := "Lock"
		switch fields["event"] {
		case "acquired":
			if strings.Contains(fields["data"], `"lock_token"`) {
				schema = "AcquiredLock"
			}
		case "lost":
			schema = "Problem"
		case "reconnect":
			schema = "Reconnect"
		case "":
			if event != ": alive" {
				return fmt.Errorf("no event: %s", event)
			}
			continue
		case "sync":
			schema = "Snapshot"
		case "past":
			schema = "FeedPast"
		case "changes":
			schema = "FeedChanges"
		case "lines":
			schema = "FeedLines"
		}
		if err := c.checkSchema(schema, []byte(fields["data"])); err != nil {
			return fmt.Errorf("the event %s: %w", event, err)
		}
	}
}

var servedContract = sync.OnceValues(func() (*contract, error) {
	f := buildFixture(settings())
	recorder := httptest.NewRecorder()
	request, err := http.NewRequest(http.MethodGet, "/openapi.json", http.NoBody)
	if err != nil {
		return nil, err
	}
	f.ServeHTTP(recorder, request)
	return newContract(recorder.Body.Bytes())
})

func theContract(tb testing.TB) *contract {
	tb.Helper()
	found, err := servedContract()
	if err != nil {
		tb.Fatal(err)
	}
	return found
}
