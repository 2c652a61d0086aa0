package rest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// silenceParts bounds for how long the machine of a client may not acknowledge what it is sent: for one in so many parts of the ttl.
// With the time between two events, that is less than the ttl.
const silenceParts = 2

// holdStream is the answer to a call that holds a lock as long as its connection lives. It implements [locks.Connection].
type holdStream struct {
	eventWriter

	timers clock.WithTicker
	// first is the answer without hold, which is told in that event.
	first *answer
	event string
	// end is when an authenticated caller has to show its credentials again.
	end time.Time
}

// acquireAndHold answers POST with hold=true.
func (c *call) acquireAndHold() (*answer, error) {
	sent := servertime.Timers(c.config.Clock).Now()
	granted, err := c.acquireRequested()
	if err != nil {
		return nil, err
	}
	answered, err := c.answerGranted(c.requested, granted, nil)
	if err != nil {
		return nil, err
	}
	c.Writer.Header().Set("Location", answered.location)
	return nil, c.hold(granted, sent, answered, wire.EventAcquired)
}

// renewAndHold answers PUT with hold=true.
func (c *call) renewAndHold() (*answer, error) {
	sent := servertime.Timers(c.config.Clock).Now()
	answered, err := c.renew()
	if err != nil {
		return nil, err
	}
	return nil, c.hold(c.granted, sent, answered, wire.EventRenewed)
}

// ofHold returns the shortest ttl that the call may ask for, and the connection that is to hold the lock, or "".
func (c *call) ofHold() (leastTTL time.Duration, connection string) {
	if !c.operation.isStream {
		return rules.MinTTL, ""
	}
	return locks.MinHoldTTL, uuid.NewString()
}

// hold sends the answer as the first event, and holds the lock as long as the connection lives. The request for it was sent at that
// time of the timers at the earliest.
func (c *call) hold(held *v1alpha1.Lock, sent time.Time, first *answer, event string) error {
	c.undo = nil // From now on the hold releases the lock.
	defer c.config.Server.BeginHold()()
	stream := &holdStream{eventWriter: newEventWriter(c), timers: servertime.Timers(c.config.Clock), first: first, event: event}
	stream.end = stream.timers.Now().Add(maxStreamTime)
	hold := c.config.Locks.Hold(&c.Caller, held, sent, stream.timers)
	ctx := c.Request.Context()
	server.BoundSilence(ctx, held.Spec.TTL.Duration/silenceParts)
	err := c.Caller.Permit.Wait(ctx, func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return hold.Run(ctx, stream)
	})
	switch isGone := ctx.Err() != nil || errors.Is(err, errGone); {
	case !c.hasBegun: // Who has renewed a lock, and is not told, may go on with it through another replica.
		if event == wire.EventAcquired {
			hold.Release(ctx)
		}
		return err
	case isGone:
		hold.Release(ctx)
	case errors.Is(err, limits.ErrDraining), errors.Is(err, errOver):
		// The lock stays for its ttl. What fails, the client sees by the end of the connection.
		_ = stream.tell(wire.EventReconnect, wire.Reconnect{Detail: "Hold the lock by another connection: renew it with PUT and hold=true before expires_at"})
	default:
		if isNotOwn(err) {
			err = problems.New(problems.LockEnded, "The lock has ended: it expired, was released or broken, or another connection has taken it up")
		}
		_ = stream.tell(wire.EventLost, c.problemOf(err).Document)
		hold.Release(ctx)
	}
	return nil // The answer was sent.
}

// errGone means that the client can be told nothing any more.
var errGone = errors.New("the connection has ended")

// tell sends an event.
func (s *holdStream) tell(event string, data any) error {
	err := s.send(func() { s.write("event: " + event + "\ndata: " + string(encode(data)) + "\n\n") })
	if err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// Begin implements [locks.Connection].
func (s *holdStream) Begin() error {
	s.beginStream(s.first.status)
	return s.tell(s.event, s.first.body)
}

// Renewed implements [locks.Connection]. The service renews for a caller who may do so.
func (s *holdStream) Renewed(renewed *v1alpha1.Lock) error {
	ctx, cancel := context.WithTimeout(s.Request.Context(), reviewTimeout)
	defer cancel()
	err := s.config.Access.Authorize(ctx, &s.Caller, s.operation.verb, s.requestedLock)
	if errors.Is(err, lock.ErrForbidden) {
		return err
	}
	return s.tell(wire.EventRenewed, describe(renewed))
}

// Alive implements [locks.Connection].
func (s *holdStream) Alive() error {
	if s.Caller.IsAuthenticated && !s.timers.Now().Before(s.end) {
		return errOver
	}
	if err := s.send(func() { s.write(": alive\n\n") }); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

var _ locks.Connection = (*holdStream)(nil)
