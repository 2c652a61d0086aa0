package forrst_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
)

func TestHTTPRequestsThatAreRefused(t *testing.T) {
	large := strings.Repeat(" ", forrst.MaxRequestBytes+1)
	cases := map[string]struct {
		method, contentType, body string
		status                    int
	}{
		"GET":                             {http.MethodGet, "", "", 405},
		"PUT":                             {http.MethodPut, "application/json", "{}", 405},
		"DELETE":                          {http.MethodDelete, "", "", 405},
		"OPTIONS":                         {http.MethodOptions, "", "", 405},
		"PATCH, also with a wrong type":   {http.MethodPatch, "text/xml", large, 405},
		"text":                            {http.MethodPost, "text/plain", "{}", 415},
		"a form":                          {http.MethodPost, "application/x-www-form-urlencoded", "a=b", 415},
		"another JSON":                    {http.MethodPost, "application/vnd.api+json", "{}", 415},
		"several types":                   {http.MethodPost, "application/json, text/plain", "{}", 415},
		"a type before its size":          {http.MethodPost, "text/plain", large, 415},
		"a byte too much":                 {http.MethodPost, "application/json", large, 413},
		"many bytes too much":             {http.MethodPost, "application/json", strings.Repeat(large, 10), 413},
		"no bytes, which cannot be JSON":  {http.MethodPost, "application/json", "", 400},
		"no type is taken for JSON":       {http.MethodPost, "", "", 400},
		"a type in another case":          {http.MethodPost, "Application/JSON", "", 400},
		"a type with a charset":           {http.MethodPost, "application/json; charset=utf-8", "", 400},
		"a type with nonsense parameters": {http.MethodPost, "application/json ;; x=", "", 400},
		"the largest size":                {http.MethodPost, "application/json", large[1:], 400},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			request := httptest.NewRequestWithContext(t.Context(), test.method, forrst.Path, strings.NewReader(test.body))
			if test.contentType != "" {
				request.Header.Set("Content-Type", test.contentType)
			}
			got := f.serve(request)
			want := "INVALID_REQUEST"
			if test.status == 400 {
				want = "PARSE_ERROR"
			}
			f.wantProblems(got, test.status, want)
			if got.ID != nil || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("id %v, headers %v", got.ID, got.header)
			}
			if (got.header.Get("Allow") == "POST") != (test.status == 405) {
				t.Errorf("Allow: %q", got.header.Get("Allow"))
			}
		})
	}
}

func TestContentEncodingIsRefused(t *testing.T) {
	f := newFixture(t)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, strings.NewReader("\x1f\x8b"))
	request.Header.Set("Content-Encoding", "gzip")
	f.wantProblems(f.serve(request), 415, "INVALID_REQUEST")

	request = httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, strings.NewReader(envelopeWith(ping, "", "")))
	request.Header.Set("Content-Encoding", "Identity")
	if got := f.serve(request); got.status != 200 {
		t.Errorf("identity is no encoding, but the status is %d", got.status)
	}
}

func TestBodyThatBreaksOff(t *testing.T) {
	f := newFixture(t)
	body := io.MultiReader(strings.NewReader(`{"id"`), errorReader{})
	f.wantProblems(f.serve(httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, body)), 400, "INVALID_REQUEST")
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errBroken }

func TestResponseHeaders(t *testing.T) {
	var f *fixture
	slow := function("slow", func(context.Context) (any, error) {
		f.clock.SetTime(f.clock.Now().Add(1234567 * time.Microsecond))
		return nil, nil
	})
	f = newFixture(t, slow)
	got := f.post(envelopeWith("slow", "", ""))
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Forrst-Request-Id": "a-1", "X-Forrst-Duration-Ms": "1234", "Forrst-Namespace": namespace,
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.header.Get(name), want)
		}
	}
	if !strings.Contains(got.body, `"result":null`) || got.status != 200 {
		t.Errorf("status %d, %s", got.status, got.body)
	}
}

func TestIDsInHeaders(t *testing.T) {
	cases := map[string]string{
		`a b-1~!`:                   "a b-1~!",
		`a\r\nSet-Cookie: x`:        "",
		`tab\t`:                     "",
		` a`:                        "",
		`a `:                        "",
		`\u0000`:                    "",
		`\u007f`:                    "",
		`ü`:                         "",
		strings.Repeat("x", 10_000): "",
	}
	for id, want := range cases {
		got := newFixture(t).post(strings.Replace(envelopeWith(ping, "", ""), "a-1", id, 1))
		if header := got.header.Get("X-Forrst-Request-Id"); header != want || got.status != 200 {
			t.Errorf("id %.20q: status %d, header %q, want %q", id, got.status, header, want)
		}
		var sent string
		if err := json.Unmarshal([]byte(`"`+id+`"`), &sent); err != nil || *got.ID != sent {
			t.Errorf("id %.20q is repeated as %.100q, %v", sent, *got.ID, err)
		}
	}
}

func TestOtherPathsAreNotServed(t *testing.T) {
	for _, path := range []string{"/forrst/", "/rpc"} {
		recorder := httptest.NewRecorder()
		newFixture(t).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
		if recorder.Code != 404 {
			t.Errorf("%s: status %d, want 404", path, recorder.Code)
		}
	}
}
