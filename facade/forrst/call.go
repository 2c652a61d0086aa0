package forrst

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/tracing"
)

// maxUncountedBytes is the largest request whose room is given back before the call is over: an answer
// repeats some of what was sent, such as the id, so a part of a larger one stays in memory.
const maxUncountedBytes = 8 << 10

// call is one call on its way through the façade.
type call struct {
	*Handler

	request envelope.Request
	// body is where the memory of the request is accounted for, and size how large that is.
	body     *limits.Body
	size     int
	function *function
	response *envelope.Response
	caller   access.Caller
	// start is when the request arrived.
	start time.Time
	// trace is that of the call; nil if it is not traced.
	trace *tracing.Call
	// decorate is done to the response of a call that could be read, whatever came of it.
	decorate []func()
	// markCompleted is called when the function is over. Nil if no extension needs that.
	markCompleted func()
	// undo takes back what the function has done, if its caller cannot learn of it. Nil if
	// there is nothing to take back.
	undo func(context.Context)
	// endingLock is the lock that ends with a routed function. Nil if there is none or it
	// stays.
	endingLock *forward.Lock
	// isLeft says that the background keeps the room of the body.
	isLeft bool
	// isUnstarted says that a routed function cannot have begun.
	isUnstarted bool
	// fencing is the number of the grant, 0 if no lock was acquired.
	fencing int64
	// fullKey is that of the lock around a routed function. Empty if there is none.
	fullKey v1alpha1.FullKey
	// about is the full key of the lock that the call is about, as far as it is known when the arguments
	// have been let go of.
	about v1alpha1.FullKey
	// isForeign says that the errors of the answer are those of a service that a routed function runs in.
	isForeign bool
	// isBare says that the result alone is the answer.
	isBare bool
	// named are the namespaces that the request names, usually none.
	named []string
}

// answer runs the call in text, which body has read, for the caller. It always returns a
// response: a panic of the façade or of a function is an internal error.
func (h *Handler) answer(r *http.Request, caller access.Caller, text []byte, body *limits.Body, start time.Time, traced *tracing.Call) *call {
	c := &call{Handler: h, caller: caller, body: body, size: len(text), response: envelope.NewResponse(""), start: start, trace: traced}
	c.serve(r, text)
	for _, decorate := range c.decorate {
		decorate()
	}
	return c
}

func (c *call) serve(r *http.Request, body []byte) {
	defer func() {
		if cause := recover(); cause != nil {
			c.config.Logger.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic",
				"function", c.request.Call.Function, "stack", string(debug.Stack()))
			c.fail(envelope.Errors{internalError})
		}
	}()
	var problems envelope.Errors
	c.request, problems = envelope.DecodeRequest(body)
	if c.request.ID != "" {
		c.response.ID = &c.request.ID
	}
	if len(problems) > 0 {
		if err := c.caller.Permit.Begin(r.Context(), limits.Work, 0); err != nil {
			problems = c.problems(r.Context(), err, "")
		}
		c.fail(problems)
		return
	}
	c.named = namesOfNamespaces(r)
	ctx := c.beginTrace(r.Context(), r.Header)
	c.addRetryAdvice()
	result, err := c.run(ctx)
	if err != nil {
		c.fail(c.problems(ctx, err, c.request.Call.Function))
		return
	}
	c.response.Result = result
}

// run does steps 7 to 10 of docs/forrst.md, section 1.6.
func (c *call) run(ctx context.Context) (_ json.RawMessage, err error) {
	var faulty error
	// An unknown function costs as much as one that acquires.
	verb, cost, wait := "", limits.Work, time.Duration(0)
	if c.function, faulty = c.resolve(); faulty == nil {
		verb, cost = c.verb(), c.function.cost
		if cost == limits.Free && verb == access.VerbCreate {
			cost, wait = limits.Work, c.wait()
		}
		c.caller.Namespace, faulty = c.config.Access.Namespace(&c.caller, c.named, verb != "")
	}
	if err := c.caller.Permit.Begin(ctx, cost, wait); err != nil {
		return nil, err
	}
	if faulty != nil {
		return nil, faulty
	}
	// Before anything is done, so that a caller without the right is told the same whether
	// or not there is a lock.
	if c.function.isRouted {
		if err := c.config.Access.AuthorizeFunction(ctx, &c.caller, c.request.Call.Function); err != nil {
			return nil, err
		}
	}
	if verb != "" {
		if err := c.config.Access.Authorize(ctx, &c.caller, verb, c.requestedLock); err != nil {
			return nil, err
		}
	}
	invoke, problems := c.prepare()
	if len(problems) > 0 {
		return nil, problems
	}
	result, err := invoke(ctx)
	if err != nil {
		return nil, err
	}
	if bare, ok := result.(unenveloped); ok {
		c.isBare, result = true, bare.result
	}
	if raw, ok := result.(json.RawMessage); ok {
		return raw, nil
	}
	return envelope.Encode(result)
}

// wait is how long the call may wait for its lock. What is wrong with the request is left to prepare.
func (c *call) wait() time.Duration {
	sent, position := c.request.Call.Arguments, -1
	if c.function.lock == nil {
		position = c.position(envelope.AtomicLock)
		sent = c.request.Extensions[position].Options
	}
	if !bytes.Contains(sent, []byte(`"block"`)) { // Most do not wait.
		return 0
	}
	var ignored envelope.Errors
	fields := c.readArguments(&ignored)
	if position >= 0 {
		fields = c.readOptions(position, &ignored)
	}
	if block := c.readBlock(&fields); block != nil {
		return block.Length
	}
	return 0
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

// requestedLock returns the one lock that the call is about, or "" if it is about none or several.
// What is wrong with the request is left to prepare, which reads the same members.
func (c *call) requestedLock() v1alpha1.FullKey {
	switch position := c.position(envelope.AtomicLock); {
	case c.function.lock != nil:
		return c.function.lock(c)
	case position >= 0:
		var ignored envelope.Errors
		fields := c.readOptions(position, &ignored)
		key, _ := fields.RequiredText("key")
		if readScope(&fields) == wire.FunctionScope {
			return v1alpha1.NewFullKey(v1alpha1.ScopeFunction, c.request.Call.Function, key)
		}
		return v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", key)
	}
	return ""
}

// namespacePart is the part of the path that names a namespace.
const namespacePart = "namespace"

// namesOfNamespaces returns those that a request names, usually none.
func namesOfNamespaces(r *http.Request) []string {
	names := r.Header.Values(wire.NamespaceHeader)
	if fromPath := r.PathValue(namespacePart); fromPath != "" {
		names = append(slices.Clip(names), fromPath)
	}
	return names
}

// prepare checks extensions and arguments and returns the function with everything
// that its extensions do around it. Nothing has happened yet when it returns.
func (c *call) prepare() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	wrappers := c.prepareExtensions(&problems)
	invoke, found := c.function.prepare(c)
	for _, problem := range found {
		problems.Add(problem)
	}
	if c.position(envelope.Cancellation) >= 0 {
		invoke = c.markingCompleted(invoke)
	}
	for _, wrap := range slices.Backward(wrappers) {
		invoke = wrap(invoke)
	}
	if !c.function.keepsBody {
		c.forgetBody()
	}
	return invoke, problems
}

// markingCompleted calls markCompleted when the function is over.
func (c *call) markingCompleted(invoke Invocation) Invocation {
	return func(ctx context.Context) (any, error) {
		result, err := invoke(ctx)
		if c.markCompleted != nil {
			c.markCompleted()
		}
		return result, err
	}
}

// undoUnanswered takes back what a function has done that returned err but whose caller
// is told something else.
func (c *call) undoUnanswered(ctx context.Context, err error) {
	if err == nil && c.undo != nil {
		c.undo(ctx)
	}
}

// forgetBody lets go of the body of the request: it can be large, and the call may
// wait for long. The room of a large one is kept all the same.
func (c *call) forgetBody() {
	c.request.Call.Arguments, c.request.Context = nil, nil
	for i := range c.request.Extensions {
		c.request.Extensions[i].Options = nil
	}
	if c.size <= maxUncountedBytes {
		c.body.Forget()
	}
}

// fail makes the response a failure. Extension entries stay: they tell what was done
// before it failed.
func (c *call) fail(problems envelope.Errors) {
	c.response.Result = nil
	c.response.Errors = problems
}

// report adds an extension entry to the response. It repeats the URN of the request,
// of the two dialects the one that the caller understands.
func (c *call) report(position int, data any) {
	c.response.Extensions = append(c.response.Extensions, envelope.ResponseExtension{
		URN:  c.request.Extensions[position].URN,
		Data: envelope.MustEncode(data),
	})
}
