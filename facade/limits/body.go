package limits

import (
	"bytes"
	"errors"
	"io"
)

const (
	// maxDrainedBytes of a body that is refused are read and forgotten: a client that is still
	// sending when the connection closes never sees the answer.
	maxDrainedBytes = 8 << 20
	// maxExpectedBytes are set aside for a body that is announced. More has to come first: an
	// announcement costs the client nothing.
	maxExpectedBytes = 64 << 10
)

// ErrTooLarge refuses a body for its size.
var ErrTooLarge = errors.New("the body is too large")

// Body reads the body of a request within the limit of all bodies. Only bytes that have
// arrived count: what a client announces may never come.
type Body struct {
	io.LimitedReader

	limiter *Limiter
	size    int64
	taken   int64
}

// Body returns a reader of a body of at most size bytes. [Body.Forget] must follow.
func (l *Limiter) Body(reader io.Reader, size int64) *Body {
	// With one byte more, a body that is too large is told from one that fits.
	return &Body{LimitedReader: io.LimitedReader{R: reader, N: size + 1}, limiter: l, size: size}
}

// ReadAll returns the whole body, of which the client has announced so many bytes; -1 means that
// this is unknown. The error is [ErrBodies], [ErrTooLarge], or that of the connection. After the
// first two nothing is kept, and what the client still sends is read.
func (b *Body) ReadAll(announced int64) ([]byte, error) {
	var body bytes.Buffer
	if 0 < announced && announced <= b.size {
		body.Grow(int(min(announced, maxExpectedBytes)) + bytes.MinRead)
	}
	_, err := body.ReadFrom(b)
	switch {
	case err == nil && int64(body.Len()) <= b.size:
		return body.Bytes(), nil
	case err == nil:
		err = ErrTooLarge
	case !errors.Is(err, ErrBodies):
		return nil, err
	}
	b.Forget()
	// An error here only means that the client stopped sending.
	_, _ = io.CopyN(io.Discard, b.R, maxDrainedBytes)
	return nil, err
}

// Read implements [io.Reader]. The error is [ErrBodies] if the bodies of other requests
// leave no room.
func (b *Body) Read(p []byte) (int, error) {
	n, err := b.LimitedReader.Read(p)
	if b.limiter.bodyBytes.Add(-int64(n)) < 0 {
		b.limiter.bodyBytes.Add(int64(n))
		return 0, ErrBodies
	}
	b.taken += int64(n)
	return n, err
}

// Forget gives the room back. Calling it again changes nothing.
func (b *Body) Forget() {
	b.limiter.bodyBytes.Add(b.taken)
	b.taken = 0
}
