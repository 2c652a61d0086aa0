package bodies

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

const (
	// maxDrainedBytes of a body that is refused are read and forgotten: a client that is still
	// sending when the connection closes never sees the answer.
	maxDrainedBytes = 1 << 20
	// maxExpectedBytes are set aside for a body that is announced. More has to come first: an
	// announcement costs the client nothing.
	maxExpectedBytes = 64 << 10
)

// ErrTooLarge refuses a body for its size.
var ErrTooLarge = errors.New("the body is too large")

// errForgotten refuses room to what comes when the work on the body is over.
var errForgotten = errors.New("the work on the body is over")

// Room is the memory that bodies take. It is safe for concurrent use.
type Room interface {
	// Take takes room for so many bytes, or returns an error if there is none.
	Take(n int64) error
	// Give gives it back.
	Give(n int64)
}

// Body reads the body of a request, and takes room for it. Only bytes that have arrived count: what a
// client announces may never come.
type Body struct {
	io.LimitedReader

	room Room
	size int64

	mu    sync.Mutex
	taken int64
	// refused is the error with which the room was last refused.
	refused     error
	isForgotten bool
}

// Init makes an unused Body the reader of a body of at most size bytes. [Body.Forget] must follow.
func (b *Body) Init(room Room, reader io.Reader, size int64) {
	// With one byte more, a body that is too large is told from one that fits.
	b.LimitedReader = io.LimitedReader{R: reader, N: size + 1}
	b.room, b.size = room, size
}

// ReadAll returns the whole body, of which the client has announced so many bytes; -1 means that
// this is unknown. The error is that of the room, [ErrTooLarge], or that of the connection. After
// the first two nothing is kept, and what the client still sends is read.
func (b *Body) ReadAll(announced int64) ([]byte, error) {
	var body bytes.Buffer
	var err error
	if announced > b.size {
		err = ErrTooLarge
	} else {
		body.Grow(int(min(max(announced, 0), maxExpectedBytes)) + bytes.MinRead)
		_, err = body.ReadFrom(b)
	}
	switch {
	case err == nil && int64(body.Len()) <= b.size:
		return body.Bytes(), nil
	case err == nil:
		err = ErrTooLarge
	case b.wasRefused():
	case !errors.Is(err, ErrTooLarge):
		return nil, err
	}
	b.Forget()
	// An error here only means that the client stopped sending.
	_, _ = io.CopyN(io.Discard, b.R, maxDrainedBytes)
	return nil, err
}

func (b *Body) wasRefused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused != nil
}

// Read implements [io.Reader]. The error is that of the room if the bodies of other requests
// leave none.
func (b *Body) Read(p []byte) (int, error) {
	n, err := b.LimitedReader.Read(p)
	if full := b.Take(int64(n)); full != nil {
		return 0, full
	}
	return n, err
}

// Take takes room for what the work on the body needs besides its bytes, until [Body.Forget]. The error
// is that of the room, and another one after Forget. It is safe for concurrent use.
func (b *Body) Take(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case n <= 0:
		return nil
	case b.isForgotten:
		return errForgotten
	}
	if b.refused = b.room.Take(n); b.refused != nil {
		return b.refused
	}
	b.taken += n
	return nil
}

// Forget gives the room back. Calling it again changes nothing. It is safe for concurrent use.
func (b *Body) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.room.Give(b.taken)
	b.taken, b.isForgotten = 0, true
}
