package limits

import (
	"io"

	"forrst.dev/lock-operator/lock/bodies"
)

// ErrTooLarge refuses a body for its size.
var ErrTooLarge = bodies.ErrTooLarge

// Body reads the body of a request within the limit of all bodies.
type Body = bodies.Body

// Body returns a reader of a body of at most size bytes. Its error is [ErrBodies] if the bodies of
// other requests leave no room. [Body.Forget] must follow.
func (l *Limiter) Body(reader io.Reader, size int64) *Body { return l.bodies.Body(reader, size) }
