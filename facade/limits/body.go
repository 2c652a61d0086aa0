package limits

import (
	"io"

	"forrst.dev/lock-operator/lock/bodies"
)

// ErrTooLarge refuses a body for its size.
var ErrTooLarge = bodies.ErrTooLarge

// Body reads the body of a request within the limits of all bodies, and takes room for what
// comes from another service in answer to it. The errors of its limits are [*Error].
type Body = bodies.Body

// Body returns a reader of a body of at most size bytes. [Body.Forget] must follow.
func (l *Limiter) Body(caller Caller, reader io.Reader, size int64) *Body {
	// One allocation for both: each request has a body.
	body := &struct {
		Body

		share bodyShare
	}{share: bodyShare{l, caller}}
	body.Init(&body.share, reader, size)
	return &body.Body
}

// bodyShare is the room that the bodies of a caller have.
type bodyShare struct {
	limiter *Limiter
	caller  Caller
}

// Take implements [bodies.Room].
func (s *bodyShare) Take(size int64) error {
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	most := shares{
		l.limits.BodyBytesPerCaller, l.limits.BodyBytesPerNamespace, l.limits.BodyBytes,
		ErrCallerBodies, ErrNamespaceBodies, ErrBodies,
	}
	if err := l.check(s.caller, most, func(u usage, _ int) int { return u.bytes }, int(size)); err != nil {
		return err
	}
	l.add(s.caller, usage{bytes: int(size)})
	return nil
}

// Give implements [bodies.Room].
func (s *bodyShare) Give(size int64) {
	if size == 0 {
		return
	}
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	s.limiter.add(s.caller, usage{bytes: -int(size)})
}
