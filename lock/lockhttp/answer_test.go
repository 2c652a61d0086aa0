package lockhttp_test

import (
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock/problems"
)

// An answer about a loss has no headers of the one that it takes the place of.
func TestALossIsNotToldWithTheHeadersOfTheHandler(t *testing.T) {
	for name, outside := range map[string]string{"of a plain service": "", "of one that compresses": "gzip"} {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t)
			f.edit = func(w http.ResponseWriter, r *http.Request) {
				for header, value := range map[string]string{"Content-Encoding": "br", "Content-Length": "5", "ETag": `"1"`, "Last-Modified": "Sun, 22 Nov 2026 10:00:00 GMT", "X-Request-Id": "7"} {
					w.Header().Set(header, value)
				}
				synctest.Wait() // The watch has begun.
				_ = f.backend.ForceRelease(r.Context(), "shop", key, "stuck")
				<-r.Context().Done()
			}
			recorder := httptest.NewRecorder()
			if outside != "" {
				recorder.Header().Set("Content-Encoding", outside)
			}
			f.handler.ServeHTTP(recorder, newRequest(t.Context(), http.MethodPatch, flag, "{}"))
			answer{t, recorder.Code, recorder.Header(), recorder.Body.String()}.want(http.StatusServiceUnavailable, problems.Unavailable)
			header := recorder.Header()
			if header.Get("ETag") != "" || header.Get("Last-Modified") != "" || header.Get("Content-Length") == "5" || header.Get("Content-Encoding") != outside || header.Get("X-Request-Id") != "7" {
				t.Errorf("headers %v", header)
			}
		})
	}
}

// Nothing was sent by a flush that the writer cannot do.
func TestAFlushThatIsNotSupportedIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.edit = func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("flushed: %v", err)
			}
			synctest.Wait() // The watch has begun.
			_ = f.backend.ForceRelease(r.Context(), "shop", key, "stuck")
			<-r.Context().Done()
		}
		recorder := httptest.NewRecorder()
		f.handler.ServeHTTP(struct{ http.ResponseWriter }{recorder}, newRequest(t.Context(), http.MethodPatch, flag, "{}"))
		answer{t, recorder.Code, recorder.Header(), recorder.Body.String()}.want(http.StatusServiceUnavailable, problems.Unavailable)
	})
}

func TestTheWriterOfTheHandler(t *testing.T) {
	for name, edit := range map[string]http.HandlerFunc{
		"flushes": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "do")
			if flusher, ok := w.(http.Flusher); ok {
				flusher.Flush()
			}
			_, _ = io.WriteString(w, "ne")
		},
		"flushes by its controller": func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, "done")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		},
		"copies": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("done")})
		},
		"hijacks": func(w http.ResponseWriter, _ *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone")
			_ = connection.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.edit = func(w http.ResponseWriter, r *http.Request) {
				edit(w, r)
				// It is too late to tell of a loss.
				if err := f.backend.ForceRelease(r.Context(), "shop", key, "stuck"); err != nil {
					t.Error(err)
				}
				<-r.Context().Done()
			}
			server := httptest.NewServer(f.handler)
			defer server.Close()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL+flag, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK || string(text) != "done" {
				t.Errorf("status %d, %q, %v", response.StatusCode, text, err)
			}
		})
	}
}

// The server removes them by the request that it knows.
func TestNoFileOfAFormIsLeft(t *testing.T) {
	files := t.TempDir()
	t.Setenv("TMPDIR", files)
	f := newFixture(t)
	f.edit = func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
		if stored, err := os.ReadDir(files); err != nil || len(stored) != 1 {
			t.Errorf("%d files are stored: %v", len(stored), err)
		}
	}
	server := httptest.NewServer(f.handler)
	var form strings.Builder
	writer := multipart.NewWriter(&form)
	part, err := writer.CreateFormFile("picture", "flag.png")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(part, strings.Repeat("p", 1<<10))
	_ = writer.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL+flag, strings.NewReader(form.String()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", writer.FormDataContentType())
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	server.Close() // It waits for the request.
	if left, err := os.ReadDir(files); err != nil || len(left) > 0 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
}
