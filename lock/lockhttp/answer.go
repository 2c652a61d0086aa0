package lockhttp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// write sends an answer. The body is of a type of this module, nil if there is none. The error means that
// nothing, or not all, of the answer was sent.
func write(w http.ResponseWriter, status int, contentType string, body any) error {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if body == nil {
		w.WriteHeader(status)
		return nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Errorf("lockhttp: an answer cannot be encoded: %w", err))
	}
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, err = w.Write(text)
	return err
}

// answerWriter knows whether an answer has begun.
type answerWriter struct {
	http.ResponseWriter

	hasBegun bool
	// encoding is the Content-Encoding from before the handler: of a writer below that compresses.
	encoding []string

	mu         sync.Mutex // guards the connection
	isHijacked bool
	// isBodyRead says that nothing of the request is left to read.
	isBodyRead bool
}

func newAnswerWriter(w http.ResponseWriter, r *http.Request) *answerWriter {
	return &answerWriter{
		ResponseWriter: w, encoding: w.Header()["Content-Encoding"],
		isBodyRead: r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0,
	}
}

// body tells the writer of the answer when it has been read.
type body struct {
	io.ReadCloser

	answer *answerWriter
}

// Read implements [io.Reader].
func (b *body) Read(into []byte) (int, error) {
	read, err := b.ReadCloser.Read(into)
	if err != nil {
		b.answer.mu.Lock()
		defer b.answer.mu.Unlock()
		b.answer.isBodyRead = true
	}
	return read, err
}

// dropHeaders deletes the headers that describe an answer of the handler, for another one in its place.
func (w *answerWriter) dropHeaders() {
	header := w.Header()
	for _, name := range []string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified"} {
		header.Del(name)
	}
	if w.encoding != nil {
		header["Content-Encoding"] = w.encoding
	}
}

// stopReading ends a read of the body that waits for the client, and fails each later one. For some
// writers it can do nothing. It leaves a connection alone from which the server reads beyond the body, to
// notice that the client leaves: that would end the context of each later request on the connection.
func (w *answerWriter) stopReading() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isHijacked && !w.isBodyRead {
		_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Unix(1, 0))
	}
}

// WriteHeader implements [http.ResponseWriter].
func (w *answerWriter) WriteHeader(status int) {
	// Informational answers come before the answer.
	w.hasBegun = w.hasBegun || status >= http.StatusOK || status == http.StatusSwitchingProtocols
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *answerWriter) Write(text []byte) (int, error) {
	w.hasBegun = true
	return w.ResponseWriter.Write(text)
}

// ReadFrom implements [io.ReaderFrom], so that files are sent as without this writer.
func (w *answerWriter) ReadFrom(source io.Reader) (int64, error) {
	w.hasBegun = true
	return io.Copy(w.ResponseWriter, source)
}

// Flush implements [http.Flusher].
func (w *answerWriter) Flush() { _ = w.FlushError() }

// FlushError is Flush for [http.ResponseController].
func (w *answerWriter) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.hasBegun = w.hasBegun || !errors.Is(err, http.ErrNotSupported)
	return err
}

// Hijack implements [http.Hijacker].
func (w *answerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	connection, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.isHijacked = w.isHijacked || err == nil
	w.hasBegun = w.hasBegun || err == nil
	return connection, buffer, err
}

// Unwrap lets [http.ResponseController] find the other methods of the writer.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
