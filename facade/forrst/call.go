package forrst

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
)

// maxUncountedBytes is the largest request whose room is given back before the call is over: an answer repeats some of what
// was sent, such as the id, so a part of a larger one stays in memory.
const maxUncountedBytes = 8 << 10

// call is one call on its way through the door. It implements [server.Protocol].
type call struct {
	server.Call
	*Handler

	request  envelope.Request
	size     int      // of the request, in bytes
	named    []string // the namespaces that the request names, usually none
	function *function
	faults   envelope.Errors // what is wrong with extensions and arguments
	response *envelope.Response
	status   int  // that of the answer
	isBare   bool // a result alone is the answer
	// decorate is done to the response of a call that could be read, whatever came of it.
	decorate []func()
	// markCompleted is called when the function is over. Nil if no extension needs that.
	markCompleted func()
	// undo takes back what the function has done, if its caller cannot learn of it. Nil if there is nothing to take back.
	undo func(context.Context)
	// trace is where the call belongs in a distributed trace. Nil if nothing tells of one.
	trace *forward.Trace
	// about is the full key of the lock that the call is about, as far as it is known when the arguments have been let go of.
	about   v1alpha1.FullKey
	fencing int64 // the number of the grant, 0 if no lock was acquired

	// Of a routed function:
	fullKey     v1alpha1.FullKey // that of the lock around it; empty if there is none
	endingLock  *forward.Lock    // ends with the function; nil if there is none or it stays
	isUnstarted bool             // it cannot have begun
	isForeign   bool             // the errors of the answer are those of its service
}

// Read implements [server.Protocol].
func (c *call) Read() (server.Asked, error) {
	text, err := c.receive()
	if err != nil {
		return server.Asked{Cost: limits.Work}, err
	}
	c.size = len(text)
	var problems envelope.Errors
	c.request, problems = envelope.DecodeRequest(text)
	if c.request.ID != "" {
		c.response.ID = &c.request.ID
	}
	if len(problems) > 0 {
		return server.Asked{Cost: limits.Work}, problems
	}
	c.named = c.Request.Header.Values(wire.NamespaceHeader)
	if fromPath := c.Request.PathValue(namespacePart); fromPath != "" {
		c.named = append(slices.Clip(c.named), fromPath)
	}
	c.beginTrace()
	c.addRetryAdvice()
	// An unknown function costs as much as one that acquires.
	if c.function, err = c.resolve(); err != nil {
		return server.Asked{Cost: limits.Work}, err
	}
	asked := server.Asked{Verb: c.verb(), Lock: c.requestedLock, Cost: c.function.cost}
	if c.function.isRouted {
		asked.Function = c.request.Call.Function
	}
	if asked.Cost == limits.Free && asked.Verb == access.VerbCreate {
		asked.Cost, asked.Wait = limits.Work, c.wait()
	}
	c.Caller.Namespace, err = c.config.Access.Namespace(&c.Caller, c.named, asked.Verb != "")
	return asked, err
}

// Run implements [server.Protocol]. It does steps 8 to 10 of docs/forrst.md, section 1.6.
func (c *call) Run(ctx context.Context) error {
	invoke := c.prepare()
	if len(c.faults) > 0 {
		return c.faults
	}
	result, err := invoke(ctx)
	if err != nil {
		return err
	}
	if raw, ok := result.(json.RawMessage); ok {
		c.response.Result = raw
		return nil
	}
	c.response.Result, err = envelope.Encode(result)
	return err
}

// wait is how long the call may wait for its lock. What is wrong with the request is left to prepare.
func (c *call) wait() time.Duration {
	sent := c.request.Call.Arguments
	if c.function.lock == nil {
		sent = c.request.Extensions[c.position(envelope.AtomicLock)].Options
	}
	var request lock.Request
	if bytes.Contains(sent, []byte(`"block"`)) { // Most do not wait.
		fields, _ := envelope.ReadObject(sent, "", new(envelope.Errors))
		c.readBlock(&fields, &request)
	}
	return request.Wait
}

// verb is what the caller has to be allowed to do, or empty if the call touches no lock.
func (c *call) verb() string {
	if c.function.verbOfAll != "" && c.requestedLock() == "" {
		return c.function.verbOfAll
	}
	if c.function.verb == "" && c.position(envelope.AtomicLock) >= 0 {
		return access.VerbCreate
	}
	return c.function.verb
}

// requestedLock returns the one lock that the call is about, or "" if it is about none or several. What is wrong with the
// request is left to prepare, which reads the same members.
func (c *call) requestedLock() v1alpha1.FullKey {
	switch position := c.position(envelope.AtomicLock); {
	case c.function.lock != nil:
		return c.function.lock(c)
	case position >= 0:
		return c.lockOfOptions(position)
	}
	return ""
}

// prepare checks extensions and arguments, adds what is wrong to the faults, and returns the function with everything that
// its extensions do around it. Nothing has happened yet when it returns.
func (c *call) prepare() Invocation {
	wrappers := c.prepareExtensions()
	function := c.function.prepare(c)
	invoke := func(ctx context.Context) (any, error) {
		result, err := function(ctx)
		if c.markCompleted != nil {
			c.markCompleted()
		}
		return result, err
	}
	for _, wrap := range slices.Backward(wrappers) {
		if wrap != nil {
			invoke = wrap(invoke)
		}
	}
	if !c.function.keepsBody {
		c.forgetBody()
	}
	return invoke
}

// undoUnanswered takes back what a function has done that returned err but whose caller is told something else.
func (c *call) undoUnanswered(ctx context.Context, err error) {
	if err == nil && c.undo != nil {
		c.undo(ctx)
	}
}

// forgetBody lets go of the body of the request: it can be large, and the call may wait for long. The room of a large one is
// kept all the same.
func (c *call) forgetBody() {
	c.request.Call.Arguments, c.request.Context = nil, nil
	for i := range c.request.Extensions {
		c.request.Extensions[i].Options = nil
	}
	if c.size <= maxUncountedBytes {
		c.Body.Forget()
	}
}

// report adds the entry of an extension to the response. It repeats the URN of the request, of the two dialects the one that
// the caller understands.
func (c *call) report(position int, data any) { c.reportAs(c.request.Extensions[position].URN, data) }

func (c *call) reportAs(urn string, data any) {
	c.response.Extensions = append(c.response.Extensions, envelope.ResponseExtension{URN: urn, Data: envelope.MustEncode(data)})
}

// Conclude implements [server.Protocol]. Extension entries stay with a failure: they tell what was done before it failed.
func (c *call) Conclude(err error) server.Conclusion {
	if err != nil {
		c.response.Result, c.response.Errors = nil, c.problems(err)
	}
	for _, decorate := range c.decorate {
		decorate()
	}
	c.status = c.response.Status()
	if fault, ok := errors.AsType[*server.RequestError](err); ok {
		c.status = fault.Status
	}
	concluded := server.Conclusion{Key: c.refusedLock, FencingToken: c.fencing, Outcome: "OK", Status: c.status}
	if c.function != nil {
		concluded.Class, concluded.Operation, concluded.Function = c.function.class, c.function.operation(), c.request.Call.Function
	}
	if len(c.response.Errors) > 0 {
		first := &c.response.Errors[0]
		concluded.Outcome = outcomeOf(first.Code)
		if !c.isForeign {
			concluded.Reason, concluded.Message = refusalReasons[first.Code], first.Message
		}
	}
	return concluded
}

// refusedLock returns the lock that a refused call is about, or "" if it is not known.
func (c *call) refusedLock() v1alpha1.FullKey {
	if c.about != "" || c.function == nil {
		return c.about
	}
	return c.requestedLock()
}

// outcomeOf returns one of a bounded number of texts. OTHER stands for the codes that routed functions make up.
func outcomeOf(code envelope.Code) string {
	switch code {
	case envelope.ParseError, envelope.InvalidRequest, envelope.InvalidProtocolVersion, envelope.InvalidArguments,
		envelope.ExtensionNotSupported, envelope.ExtensionNotApplicable:
		return string(code)
	default:
		// Every other standard code has a status of its own.
		if code.Status() != http.StatusBadRequest {
			return string(code)
		}
	}
	return "OTHER"
}

// refusalReasons are the codes that are refusals for the audit.
var refusalReasons = map[envelope.Code]audit.Reason{
	envelope.Unauthorized:          audit.Unauthenticated,
	envelope.Forbidden:             audit.Forbidden,
	envelope.LockRefused:           audit.Forbidden,
	envelope.LockOwnershipMismatch: audit.WrongOwner,
	envelope.RateLimited:           audit.RateLimited,
}

// MaxRequestBytes is the largest body that is read (docs/forrst.md, section 4.1).
const MaxRequestBytes = 1 << 20

// namespacePart is the part of the path that names a namespace.
const namespacePart = "namespace"

// jsonType is the Content-Type of every answer. It must not be changed.
var jsonType = []string{"application/json"}

// serveForrst answers one HTTP request with one envelope, whatever is wrong with it.
func (h *Handler) serveForrst(w http.ResponseWriter, r *http.Request) {
	c := &call{Handler: h, response: envelope.NewResponse("")}
	h.calls.Serve(w, r, &c.Call, c)
}

// serveCrossOrigin refuses what a browser sends on behalf of another site's page.
func (h *Handler) serveCrossOrigin(w http.ResponseWriter, r *http.Request) {
	c := &call{Handler: h, Call: server.Call{Request: r, Writer: w, Start: h.config.Clock.Now()}, response: envelope.NewResponse("")}
	c.response.Errors = envelope.Errors{{Code: envelope.Forbidden, Message: "Pages of other origins must not call this service"}}
	c.status = c.response.Status()
	c.Send()
}

// receive checks method, media type and size in this order and reads the body. It accepts a media type with any parameters,
// also malformed ones, and none at all (docs/forrst.md, section 4.1).
func (c *call) receive() ([]byte, error) {
	contentType := c.Request.Header.Get("Content-Type")
	mediaType, _, _ := strings.Cut(contentType, ";")
	switch {
	case c.Request.Method != http.MethodPost:
		return nil, &server.RequestError{Status: http.StatusMethodNotAllowed, Message: "The method must be POST"}
	case contentType != "" && !strings.EqualFold(strings.TrimSpace(mediaType), "application/json"):
		return nil, &server.RequestError{Status: http.StatusUnsupportedMediaType, Message: "The content type must be application/json"}
	}
	return c.ReadBody()
}

// Send implements [server.Protocol]: it writes the response with the headers of docs/forrst.md, section 4.3. A success can
// go without its envelope.
func (c *call) Send() {
	server.BeginAnswer(c.Writer, c.Request)
	response, header := c.response, c.Writer.Header()
	if !c.isForeign {
		c.SetStatusHeaders(c.status)
		if c.status == http.StatusMethodNotAllowed {
			header.Set("Allow", http.MethodPost)
		}
	}
	if len(c.named) == 0 && c.Caller.Namespace != "" {
		header.Set(wire.NamespaceHeader, c.Caller.Namespace)
	}
	if node := response.Node(); node != "" && envelope.FitsHeader(node) { // A routed function may tell.
		header.Set("X-Forrst-Node", node)
	}
	if response.ID != nil && envelope.FitsHeader(*response.ID) {
		header.Set("X-Forrst-Request-Id", *response.ID)
	}
	if after := retryAfterOf(response.Errors); after != "" {
		header.Set("Retry-After", after)
	}
	body := response.Result
	if !c.isBare || len(response.Errors) > 0 {
		body = envelope.MustEncode(response)
	}
	header["Content-Type"] = jsonType
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("X-Forrst-Duration-Ms", strconv.FormatInt(c.elapsed().Milliseconds(), 10))
	c.Writer.WriteHeader(c.status)
	// A client that has gone needs no answer.
	_, _ = c.Writer.Write(body)
}
