package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/tracing"
)

// call is one request on its way through the door.
type call struct {
	*Handler

	request   *http.Request
	writer    http.ResponseWriter
	caller    access.Caller
	query     query
	operation *operation
	// acquired names the lock to acquire, once the body was read, and requested is what is asked for.
	acquired  lockName
	requested *acquisition
	// body is what was read of the request, and counted its room among the bodies of all callers. That is
	// nil if the call was refused before.
	body    []byte
	counted *limits.Body
	start   time.Time
	// trace is that of the call; nil if it is not traced.
	trace *tracing.Call
	// status is that of the answer, and outcome OK or the name of a problem.
	status  int
	outcome string
	// granted is the lock that was acquired or renewed, or nil.
	granted *v1alpha1.Lock
	// hasBegun says that the answer, a stream, has begun: no other one can follow.
	hasBegun bool
	// undo takes back what the call has done, if the caller cannot learn of it. Nil if there is
	// nothing to take back.
	undo func()
}

// answer is the answer to a call that has succeeded.
type answer struct {
	status int
	// body is encoded as JSON. Nil means that there is none.
	body any
	// etag is the entity tag, or empty.
	etag     string
	location string
}

// serve returns the handler of a resource.
func (h *Handler) serve(resource resource) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := h.begin(w, r)
		defer c.end(r.Context())
		c.answer(c.runSafely(resource)) // The call has the context of its request.
	})
}

// begin begins the call, and its trace unless the request declines that.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request) *call {
	c := &call{Handler: h, request: r, writer: w, start: h.config.Clock.Now()}
	c.beginTrace(r.Context())
	return c
}

// end ends what begin has begun. The context is that of the request.
func (c *call) end(ctx context.Context) {
	if c.trace != nil {
		c.endTrace(ctx)
	}
	c.forgetBody()
}

// answer sends what has come of the call. Both are nil for a stream that has ended.
func (c *call) answer(succeeded *answer, err error) {
	switch {
	case err != nil && c.hasBegun:
		c.observe(c.problemOf(err).Kind.Name)
	case err != nil:
		if c.undo != nil { // The call failed after it had acquired the lock.
			c.undo()
			c.undo = nil
		}
		c.refuse(c.problemOf(err))
	case succeeded == nil:
		c.observe(okOutcome)
	default:
		c.send(succeeded)
	}
}

// runSafely admits the call and does its operation. A panic is an internal error.
func (c *call) runSafely(resource resource) (answered *answer, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			c.config.Logger.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic", "stack", string(debug.Stack()))
			answered, err = nil, errPanic
		}
	}()
	if err := c.admit(resource); err != nil {
		return nil, err
	}
	return c.operation.run(c)
}

// admit does what comes before every operation, in the order in which a caller without a right learns
// least. A stack keeps the frames of calls that wait, so it is not a part of runSafely.
func (c *call) admit(resource resource) error {
	if len(resource) == 0 {
		return problems.New(problems.NoSuchPath, "There is nothing under this path; "+documentPath+" describes what there is")
	}
	choose := resource[c.request.Method]
	if choose == nil {
		c.writer.Header().Set("Allow", resource.allowed())
		return problems.New(problems.MethodNotAllowed, "The method must be one of "+resource.allowed())
	}
	c.trace.BeginAuthentication()
	var err error
	c.caller, err = server.Authenticate(c.request, c.config.Access)
	c.trace.EndAuthentication(err)
	if err != nil {
		return c.authenticationError(err)
	}
	c.counted = c.config.Server.Limiter().Body(limits.CallerOf(c.request, c.caller.Holder()), c.request.Body, maxRequestBytes)
	faulty, wait := c.readHeader(choose), time.Duration(0)
	if faulty == nil && c.operation.hasBody {
		c.body, faulty = receive(c.request, c.counted)
	}
	var mistaken error
	if faulty == nil && c.operation == acquireLock {
		wait, mistaken = c.readAcquisition()
	}
	server.BeginCall(c.writer, c.request)
	if err := c.caller.Permit.Begin(c.request.Context(), c.cost(), wait); err != nil {
		return err
	}
	if faulty != nil {
		return faulty
	}
	if c.operation.verb != "" {
		if err := c.config.Access.Authorize(c.request.Context(), &c.caller, c.operation.verb, c.requestedLock); err != nil {
			return err
		}
	}
	return mistaken
}

// readHeader reads what the request says without its body.
func (c *call) readHeader(choose func(*call) *operation) (err error) {
	if c.query, err = readQuery(c.request); err != nil {
		return err
	}
	c.operation = choose(c)
	if err := c.checkAccepted(); err != nil {
		return err
	}
	if c.operation.verb != "" {
		c.caller.Namespace, err = c.readNamespace(c.request.PathValue(namespacePart))
	}
	return err
}

// cost is what the call costs the API server. One that names no operation costs as much as one that does.
func (c *call) cost() limits.Cost {
	if c.operation == nil {
		return limits.Work
	}
	return c.operation.cost
}

// readNamespace returns the namespace of that name. An empty name means all that are served, and the namespace is empty
// unless only one is.
func (c *call) readNamespace(name string) (string, error) {
	if name == "" {
		return c.config.Access.Everywhere(), nil
	}
	return c.config.Access.Namespace(&c.caller, []string{name}, true)
}

// forgetBody gives the room of the body back: when the answer is sent, or before if the call may wait for
// long.
func (c *call) forgetBody() {
	c.body = nil
	if c.counted != nil {
		c.counted.Forget()
	}
}

// authenticationError logs why a caller could not be authenticated, unless that is its own fault.
func (c *call) authenticationError(err error) error {
	switch {
	case errors.Is(err, lock.ErrInvalid):
		return problems.New(problems.InvalidRequest, err.Error())
	case errors.Is(err, lock.ErrUnavailable) && c.request.Context().Err() == nil:
		c.config.Logger.Error(err, "Failed to authenticate a caller")
		return problems.New(problems.Unavailable, "The lock service is temporarily unavailable").Soon()
	}
	return err
}

// send writes an answer. What a caller can certainly not learn of is taken back.
func (c *call) send(answered *answer) {
	header := c.writer.Header()
	if answered.etag != "" {
		header.Set("ETag", answered.etag)
	}
	if answered.location != "" {
		header.Set("Location", answered.location)
	}
	var body []byte
	if answered.body != nil {
		body = encode(answered.body)
	}
	c.observe(okOutcome)
	if err := c.write(answered.status, jsonType, body); err != nil && c.undo != nil {
		c.undo()
	}
}

// refuse writes a problem.
func (c *call) refuse(problem *problems.Error) {
	problem.Instance = c.request.URL.EscapedPath()
	header := c.writer.Header()
	problem.SetHeaders(header)
	switch problem.Status {
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
	case http.StatusRequestTimeout:
		// What the client still sends must not be taken for another request.
		header.Set("Connection", "close")
	}
	c.observe(problem.Kind.Name)
	c.recordRefusal(problem)
	// A client that has gone needs no answer.
	_ = c.write(problem.Status, problems.ContentType, encode(problem.Document))
}

// write sends the whole answer. The error means that nothing, or not all, of it was sent.
func (c *call) write(status int, contentType string, body []byte) error {
	server.BeginAnswer(c.writer, c.request)
	header := c.writer.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if len(body) > 0 {
		header.Set("Content-Type", contentType)
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	c.status = status
	c.writer.WriteHeader(status)
	if _, err := c.writer.Write(body); err != nil && len(body) > 0 && c.request.Method != http.MethodHead { //nolint:gosec // It is JSON, and no browser takes it for anything else.
		return err
	}
	if c.undo == nil {
		return nil
	}
	// Without it, a failure to send would be known only after the handler has returned.
	return http.NewResponseController(c.writer).Flush()
}

func (c *call) observe(code string) {
	c.outcome = code
	c.metrics.Observe(c.operationName(), code, max(0, c.config.Clock.Since(c.start)))
}

func (c *call) operationName() string {
	if c.operation == nil {
		return unknownOperation
	}
	return c.operation.name
}

const (
	// okOutcome is the outcome of a call that has succeeded; that of another is the name of its problem.
	okOutcome = "OK"
	// unknownOperation stands for requests that are none.
	unknownOperation = "unknown"

	jsonType = "application/json"
)

// encode returns the JSON of an answer, whose types are all of this package.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Errorf("facade: an answer cannot be encoded: %w", err))
	}
	return text
}

// serveCrossOrigin refuses what a browser sends on behalf of another site's page.
func (h *Handler) serveCrossOrigin(w http.ResponseWriter, r *http.Request) {
	c := &call{Handler: h, request: r, writer: w, start: h.config.Clock.Now()}
	c.refuse(problems.New(problems.CrossOrigin, "Pages of other origins must not call this service"))
}
