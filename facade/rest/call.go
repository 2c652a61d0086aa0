package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/tracing"
)

// call is one request on its way through the door. It implements [server.Protocol].
type call struct {
	server.Call
	*Handler

	// choose returns the operation that the query chooses.
	choose    func(*call) *operation
	query     query
	operation *operation
	// acquired names the lock to acquire, once the body was read, and requested is what is asked for.
	acquired  lockName
	requested *acquisition
	// requestedSet is that of several locks.
	requestedSet *setAcquisition
	// failed is the lock of a set at which the call has failed.
	failed lockName
	// mistaken is what is wrong with that.
	mistaken error
	// body is what was read of the request.
	body []byte
	// granted is the lock that was acquired or renewed, or nil.
	granted *v1alpha1.Lock
	// hasBegun says that the answer, a stream, has begun: no other one can follow.
	hasBegun bool
	// answered is the answer if the call has succeeded, nil for a stream that has ended, and problem that if it has failed.
	answered *answer
	problem  *problems.Error
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
		c := &call{Handler: h, choose: resource[r.Method]}
		switch {
		case len(resource) == 0:
			h.calls.Refuse(w, r, &c.Call, c, problems.New(problems.NoSuchPath, "There is nothing under this path; "+documentPath+" describes what there is"))
		case c.choose == nil:
			w.Header().Set("Allow", resource.allowed())
			h.calls.Refuse(w, r, &c.Call, c, problems.New(problems.MethodNotAllowed, "The method must be one of "+resource.allowed()))
		default:
			h.calls.Serve(w, r, &c.Call, c)
		}
	})
}

// Read implements [server.Protocol].
func (c *call) Read() (asked server.Asked, err error) {
	c.beginTrace()
	asked.Cost = limits.Work
	if c.query, err = readQuery(c.Request); err != nil {
		return asked, err
	}
	c.operation = c.choose(c)
	repeated := ""
	if c.operation.isOfSet {
		repeated = keyPart
	}
	if err := c.query.check(repeated); err != nil {
		return asked, err
	}
	asked = server.Asked{Verb: c.operation.verb, Lock: c.requestedLock, Cost: c.operation.cost}
	if err := c.checkAccepted(); err != nil {
		return asked, err
	}
	if c.operation.verb != "" {
		if c.Caller.Namespace, err = c.readNamespace(c.Request.PathValue(namespacePart)); err != nil {
			return asked, err
		}
	}
	if c.operation.hasBody {
		if c.body, err = c.receive(); err != nil {
			return asked, err
		}
	}
	if c.operation.isAcquisition {
		asked.Wait, c.mistaken = c.readAcquisition()
	}
	return asked, nil
}

// beginTrace begins the trace of the call, unless its headers decline that.
func (c *call) beginTrace() {
	if c.config.Server.Tracer().Declines(c.Request.Header) {
		c.Trace = nil
		return
	}
	ctx := c.Request.Context()
	c.Request = c.Request.WithContext(c.Trace.Begin(ctx, tracing.ParentOfHeaders(ctx, c.Request.Header)))
}

// readNamespace returns the namespace of that name. An empty name means all that are served, and the namespace is empty
// unless only one is.
func (c *call) readNamespace(name string) (string, error) {
	if name == "" {
		return c.config.Access.Everywhere(), nil
	}
	return c.config.Access.Namespace(&c.Caller, []string{name}, true)
}

// Run implements [server.Protocol].
func (c *call) Run(context.Context) (err error) {
	if c.mistaken != nil {
		return c.mistaken
	}
	c.answered, err = c.operation.run(c) // It has the context of the request.
	return err
}

// Conclude implements [server.Protocol].
func (c *call) Conclude(err error) server.Conclusion {
	name := c.operationName()
	concluded := server.Conclusion{Class: name, Operation: name, Key: c.refusedLock, Outcome: okOutcome, Status: http.StatusOK}
	if c.granted != nil {
		concluded.FencingToken, _ = c.granted.FencingToken()
	}
	switch {
	case err != nil:
		if c.undo != nil { // The call failed after it had acquired the lock.
			c.undo()
			c.undo = nil
		}
		c.problem = c.problemOf(err)
		if c.problem.Right != nil && c.operation.isOfSet && c.failed.key == "" {
			c.failed = c.firstOfSet()
		}
		if c.failed.key != "" {
			c.problem.Key, c.problem.Detail = c.failed.key, c.failed.key+": "+c.problem.Detail
		}
		concluded.Outcome = c.problem.Kind.Name
		if !c.hasBegun {
			concluded.Status, concluded.Reason, concluded.Message = c.problem.Status, refusalReasons[c.problem.Kind], c.problem.Detail
		}
	case c.answered != nil:
		concluded.Status = c.answered.status
	}
	return concluded
}

// Send implements [server.Protocol]. What a caller can certainly not learn of is taken back.
func (c *call) Send() {
	header := c.Writer.Header()
	switch {
	case c.hasBegun:
	case c.problem != nil:
		c.problem.Instance = c.Request.URL.EscapedPath()
		c.problem.SetHeaders(header)
		c.SetStatusHeaders(c.problem.Status)
		// A client that has gone needs no answer.
		_ = c.write(c.problem.Status, problems.ContentType, encode(c.problem.Document))
	case c.answered != nil:
		if c.answered.etag != "" {
			header.Set("ETag", c.answered.etag)
		}
		if c.answered.location != "" {
			header.Set("Location", c.answered.location)
		}
		var body []byte
		if c.answered.body != nil {
			body = encode(c.answered.body)
		}
		if err := c.write(c.answered.status, jsonType, body); err != nil && c.undo != nil {
			c.undo()
		}
	}
}

// write sends the whole answer. The error means that nothing, or not all, of it was sent.
func (c *call) write(status int, contentType string, body []byte) error {
	server.BeginAnswer(c.Writer, c.Request)
	header := c.Writer.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if len(body) > 0 {
		header.Set("Content-Type", contentType)
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	c.Writer.WriteHeader(status)
	if _, err := c.Writer.Write(body); err != nil && len(body) > 0 && c.Request.Method != http.MethodHead {
		return err
	}
	if c.undo == nil {
		return nil
	}
	// Without it, a failure to send would be known only after the handler has returned.
	return http.NewResponseController(c.Writer).Flush()
}

// operationName is empty if the operation is not known.
func (c *call) operationName() string {
	if c.operation == nil {
		return ""
	}
	return c.operation.name
}

// okOutcome is the outcome of a call that has succeeded; that of another is the name of its problem.
const okOutcome = "OK"

const jsonType = "application/json"

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
	c := &call{Handler: h}
	h.calls.Refuse(w, r, &c.Call, c, problems.New(problems.CrossOrigin, "Pages of other origins must not call this service"))
}
