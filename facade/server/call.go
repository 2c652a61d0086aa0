package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/network"
	"forrst.dev/lock-operator/tracing"
)

// Calls takes the calls of one door through their lives. It is safe for concurrent use.
type Calls struct {
	*Server

	// Door is the name of the door in metrics, traces and the audit.
	Door string
	// Access decides about callers, and Clock is that of the locks.
	Access *access.Control
	Clock  clock.PassiveClock
	// Logger gets what callers are not told.
	Logger logr.Logger
	// MaxBodyBytes is the largest body that is read.
	MaxBodyBytes int64
}

// Protocol is what a door knows of one of its calls, beside the [Call]. Its methods are called once each, in this order, by one
// goroutine; Read only if the caller is authenticated, and Run only if nothing has gone wrong before.
type Protocol interface {
	// Read reads what the caller asks for, which is told of an error when it has paid for as much as is known.
	Read() (Asked, error)
	// Run does it.
	Run(ctx context.Context) error
	// Conclude words what has come of the call. The error is that of Read or Run, [ErrPanic], an [*AuthenticationError], one of
	// [access.Control] or a [*limits.Error], or nil.
	Conclude(err error) Conclusion
	// Send sends the answer.
	Send()
}

// Call is one request on its way through a door.
type Call struct {
	// Request has the context of what the call does.
	Request *http.Request
	Writer  http.ResponseWriter
	// Start is when the request arrived.
	Start time.Time
	// Trace is nil if the call is not traced.
	Trace *tracing.Call
	// Caller is known once it is authenticated.
	Caller access.Caller
	// Body is that of the request, and room for more. Nil until the caller is authenticated.
	Body *limits.Body
	// maxBodyBytes is that of [Calls].
	maxBodyBytes int64
	// KeepsBody says that work which outlives the call gives the room of the body back.
	KeepsBody bool
}

// Asked is what a caller asks for.
type Asked struct {
	// Function is one of another service, which the caller has to be allowed to call. May be empty.
	Function string
	// Verb is what the caller has to be allowed to do with locks, and Lock returns the one that it is about, see
	// [access.Control.Authorize]. An empty verb means nothing.
	Verb string
	Lock func() v1alpha1.FullKey
	// Cost is what it costs the API server, and Wait how long it may wait for a lock.
	Cost limits.Cost
	Wait time.Duration
}

// Conclusion is what has come of a call. Its texts, but for the message, are each of a bounded number.
type Conclusion struct {
	// Class is what metrics count the call as, and Operation what the audit and the trace call it. Empty if it is not known.
	Class, Operation string
	// Function is the name of a function of the Forrst door, for the trace.
	Function string
	// Key returns the full key of the lock that the call is about, as far as it is known. It need not be valid.
	Key func() v1alpha1.FullKey
	// FencingToken is the number of the grant that was made or renewed; zero if there is none.
	FencingToken int64
	// Outcome is OK or the code of an error, and Status that of the answer.
	Outcome string
	Status  int
	// Reason makes the answer a refusal for the audit, with what the caller is told, which must contain no token. Empty if it
	// is none.
	Reason  audit.Reason
	Message string
}

// ErrPanic is the error of a call that panicked, which was logged.
var ErrPanic = errors.New("panic")

// AuthenticationError says why a caller could not be authenticated.
type AuthenticationError struct{ Err error }

// Error implements error.
func (e *AuthenticationError) Error() string { return e.Err.Error() }

// Unwrap implements the interface of [errors.Is].
func (e *AuthenticationError) Unwrap() error { return e.Err }

// Serve answers a request, as the call that it fills in.
func (s *Calls) Serve(w http.ResponseWriter, r *http.Request, c *Call, p Protocol) {
	s.arrive(w, r, c)
	defer func() {
		if c.Body != nil && !c.KeepsBody {
			c.Body.Forget()
		}
	}()
	s.conclude(c, p, s.run(c, p))
}

// Refuse answers a request whose caller does not matter with the error.
func (s *Calls) Refuse(w http.ResponseWriter, r *http.Request, c *Call, p Protocol, err error) {
	s.arrive(w, r, c)
	s.conclude(c, p, err)
}

func (s *Calls) arrive(w http.ResponseWriter, r *http.Request, c *Call) {
	*c = Call{Request: r, Writer: w, Start: s.Clock.Now(), Trace: s.Tracer().Arrive(s.Door, r)}
}

// run is the life of a call until there is an answer.
func (s *Calls) run(c *Call, p Protocol) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.Logger.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic", "stack", string(debug.Stack()))
			err = ErrPanic
		}
	}()
	if err := s.authenticate(c); err != nil {
		return err
	}
	c.maxBodyBytes = s.MaxBodyBytes
	c.Body = s.limiter.Body(limits.CallerOf(c.Request, c.Caller.Holder()), c.Request.Body, s.MaxBodyBytes)
	asked, faulty := p.Read()
	BeginCall(c.Writer, c.Request)
	ctx := c.Request.Context()
	if err := c.Caller.Permit.Begin(ctx, asked.Cost, asked.Wait); err != nil {
		return err
	}
	if faulty != nil {
		return faulty
	}
	// Before anything is done, so that a caller without the right is told the same whether or not there is a lock.
	if err := s.authorize(ctx, c, &asked); err != nil {
		return err
	}
	return p.Run(ctx)
}

func (s *Calls) authenticate(c *Call) (err error) {
	c.Trace.BeginAuthentication()
	c.Caller, err = Authenticate(c.Request, s.Access)
	c.Trace.EndAuthentication(err)
	if _, isRefused := errors.AsType[*limits.Error](err); err == nil || isRefused {
		return err
	}
	if errors.Is(err, lock.ErrUnavailable) && c.Request.Context().Err() == nil {
		s.Logger.Error(err, "Failed to authenticate a caller")
	}
	return &AuthenticationError{err}
}

func (s *Calls) authorize(ctx context.Context, c *Call, asked *Asked) error {
	if asked.Function != "" {
		if err := s.Access.AuthorizeFunction(ctx, &c.Caller, asked.Function); err != nil {
			return err
		}
	}
	if asked.Verb == "" {
		return nil
	}
	return s.Access.Authorize(ctx, &c.Caller, asked.Verb, asked.Lock)
}

// conclude answers a call, and tells metrics, audit and trace of it.
func (s *Calls) conclude(c *Call, p Protocol, err error) {
	concluded := p.Conclude(err)
	if refused, ok := errors.AsType[*limits.Error](err); ok {
		s.metrics.refused.WithLabelValues(s.Door, refused.Limit).Inc()
	}
	s.Metrics(s.Door).Observe(cmp.Or(concluded.Class, unknown), concluded.Outcome, max(0, s.Clock.Since(c.Start)))
	if concluded.Reason != "" {
		s.record(c, &concluded)
	}
	p.Send()
	if c.Trace != nil {
		c.Trace.End(c.Request.Context(), tracing.Result{
			Operation: cmp.Or(concluded.Operation, unknown), Function: concluded.Function, Namespace: c.Caller.Namespace, Key: concluded.Key(),
			FencingToken: concluded.FencingToken, Outcome: concluded.Outcome, Status: concluded.Status,
		})
	}
}

// unknown stands for what is not known of a call.
const unknown = "unknown"

// maxRefusedKey is the longest full key that a lock can have, without its prefix.
const maxRefusedKey = 2*v1alpha1.MaxKeyBytes + 1

// record has a refusal on record, of a caller without an identity with its network.
func (s *Calls) record(c *Call, concluded *Conclusion) {
	record := audit.Record{
		Schema: audit.Schema, Time: v1alpha1.NewTimestamp(s.Clock.Now()), Event: audit.Refused, Reason: concluded.Reason,
		Via: audit.Facade, Door: s.Door, Namespace: c.Caller.Namespace, Operation: concluded.Operation, Message: audit.Bounded(concluded.Message),
	}
	if c.Caller.IsAuthenticated {
		record.Actor = c.Caller.Holder()
	} else if from := network.Of(c.Request.RemoteAddr); from.IsValid() {
		record.Client = from.String()
	}
	// The key of a call that was refused need not be valid.
	key := concluded.Key()
	if bare := key.Bare(); bare != "" && len(bare) <= maxRefusedKey {
		record.Lock, record.Key = key.ObjectName(), audit.Bounded(bare)
	}
	audit.OrNowhere(s.options.Audit).Record(record)
}
