package limits

import "io"

// Body reads the body of a request within the limit of all bodies. Only bytes that have
// arrived count: what a client announces may never come.
type Body struct {
	io.LimitedReader

	limiter *Limiter
	taken   int64
}

// Body returns a reader of at most size bytes. [Body.Forget] must follow.
func (l *Limiter) Body(reader io.Reader, size int64) *Body {
	return &Body{LimitedReader: io.LimitedReader{R: reader, N: size}, limiter: l}
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
