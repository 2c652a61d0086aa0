package limits

import (
	"io"

	"forrst.dev/lock-operator/lock/bodies"
)

// minBodyShare has room for a request, whatever the limit of all bodies is.
const minBodyShare = 2 << 20

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

		room bodyRoom
	}{room: bodyRoom{l.bodies, caller}}
	body.Init(&body.room, reader, size)
	return &body.Body
}

// bodyRoom is the room that the bodies of a caller have.
type bodyRoom struct {
	*pool

	caller Caller
}

// Take implements [bodies.Room].
func (r *bodyRoom) Take(size int64) error { return r.take(r.caller, int(size)) }

// Give implements [bodies.Room].
func (r *bodyRoom) Give(size int64) { r.give(r.caller, int(size)) }
