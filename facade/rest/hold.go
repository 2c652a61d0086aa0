package rest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/rules"
)

// silenceParts bounds for how long the machine of a client may not acknowledge what it is sent: for one in so many parts of the ttl.
// With the time between two events, that is less than the ttl.
const silenceParts = 2

// holdStream is the answer to a call that holds a lock as long as its connection lives. It implements [locks.Connection].
type holdStream struct {
	eventWriter

	// first is the answer without hold, which is told in that event. It is dropped then: it may have the lock token.
	first *answer
	event string
	// term is how long an authenticated caller may go on.
	term *term
}

// acquireAndHold answers POST with hold=true.
func (c *call) acquireAndHold() (*answer, error) {
	granted, err := c.acquireRequested()
	answered, err := c.answerGranted(c.requested, granted, err)
	if err != nil {
		return nil, err
	}
	return nil, c.hold(granted, answered, wire.EventAcquired)
}

// renewAndHold answers PUT with hold=true.
func (c *call) renewAndHold() (*answer, error) {
	answered, err := c.renew()
	if err != nil {
		return nil, err
	}
	return nil, c.hold(c.granted, answered, wire.EventRenewed)
}

// ofHold returns the shortest ttl that the call may ask for, and the connection that is to hold the lock, or "".
func (c *call) ofHold() (leastTTL time.Duration, connection string) {
	if !c.operation.isStream {
		return rules.MinTTL, ""
	}
	return locks.MinHoldTTL, uuid.NewString()
}

// hold sends the answer as the first event, and holds the lock as long as the connection lives.
func (c *call) hold(held *v1alpha1.Lock, first *answer, event string) error {
	if err := c.Caller.Permit.Stay(); err != nil {
		return err
	}
	c.body = nil
	c.Body.Forget()
	// From now on the hold releases the lock, unless another call of the same request, or the client, goes on with what it has found.
	isNew := c.undo != nil
	c.undo = nil
	stream := &holdStream{eventWriter: newEventWriter(c), first: first, event: event}
	var stop func()
	stream.term, stop = c.newTerm(func(ctx context.Context) error {
		return c.config.Access.Authorize(ctx, &c.Caller, c.operation.verb, c.requestedLock)
	})
	defer stop()
	hold := c.config.Locks.Hold(&c.Caller, held, c.config.Clock)
	ctx := c.Request.Context()
	server.BoundSilence(ctx, held.Spec.TTL.Duration/silenceParts)
	var ended error // Whatever else the permit says.
	err := c.Caller.Permit.Wait(ctx, func(ctx context.Context) error {
		if ended = ctx.Err(); ended == nil {
			ended = hold.Run(ctx, stream)
		}
		return ended
	})
	_, isLimited := errors.AsType[*limits.Error](err)
	isStopped := errors.Is(context.Cause(ctx), server.ErrStopped)
	switch {
	case !c.hasBegun:
		if isNew {
			hold.Release(ctx)
		}
		return err
	case isNotOwn(ended):
		stream.lost(problems.New(problems.LockEnded, "The lock has ended: it expired, was released or broken, or another connection has taken it up"))
	case errors.Is(ended, errGone), ctx.Err() != nil && !isStopped:
		hold.Release(ctx)
	case isLimited, isStopped, errors.Is(ended, errOver):
		// The lock stays for its ttl. What fails, the client sees by the end of the connection.
		_ = stream.tell(wire.EventReconnect, wire.Reconnect{Detail: "Hold the lock by another connection: renew it with PUT and hold=true before expires_at"})
	default:
		stream.lost(ended)
		hold.Release(ctx)
	}
	return nil // The answer was sent.
}

// errGone means that the client can be told nothing any more.
var errGone = errors.New("the connection has ended")

// tell sends an event.
func (s *holdStream) tell(event string, data any) error {
	return gone(s.send(func() { s.write("event: " + event + "\ndata: " + string(encode(data)) + "\n\n") }))
}

// lost tells why the client does not hold the lock any more, if it is there.
func (s *holdStream) lost(reason error) { _ = s.tell(wire.EventLost, s.problemOf(reason).Document) }

func gone(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// Begin implements [locks.Connection].
func (s *holdStream) Begin() error {
	first := s.first
	s.first = nil
	if first.location != "" {
		s.Writer.Header().Set("Location", first.location)
	}
	s.beginStream(first.status)
	return s.tell(s.event, first.body)
}

// Renewed implements [locks.Connection].
func (s *holdStream) Renewed(renewed *v1alpha1.Lock) error {
	return s.tell(wire.EventRenewed, describe(renewed))
}

// Alive implements [locks.Connection].
func (s *holdStream) Alive() error {
	if s.Caller.IsAuthenticated {
		if err := s.term.check(s.Request.Context()); err != nil {
			return err
		}
	}
	return gone(s.send(func() { s.write(": alive\n\n") }))
}

var _ locks.Connection = (*holdStream)(nil)
