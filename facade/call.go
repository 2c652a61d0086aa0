package facade

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"

	"forrst.dev/lock-operator/facade/forrst"
)

// call is one call on its way through the façade.
type call struct {
	*Handler

	request  forrst.Request
	function *Function
	response *forrst.Response
	// holder is who calls.
	holder string
}

// answer runs the call in body. It always returns a response: a panic of the
// façade or of a function is an internal error.
func (h *Handler) answer(r *http.Request, body []byte) *forrst.Response {
	c := call{Handler: h, response: forrst.NewResponse("")}
	c.serve(r, body)
	return c.response
}

func (c *call) serve(r *http.Request, body []byte) {
	defer func() {
		if cause := recover(); cause != nil {
			c.config.Logger.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic",
				"function", c.request.Call.Function, "stack", string(debug.Stack()))
			c.fail(forrst.Errors{internalError})
		}
	}()
	var problems forrst.Errors
	c.request, problems = forrst.DecodeRequest(body)
	c.response = forrst.NewResponse(c.request.ID)
	if len(problems) > 0 {
		c.fail(problems)
		return
	}
	c.holder = c.config.Holder(r)
	result, err := c.run(r.Context())
	if err != nil {
		c.fail(c.problems(r.Context(), err))
		return
	}
	c.response.Result = result
}

// run does steps 6 to 10 of section 1.6.
func (c *call) run(ctx context.Context) (json.RawMessage, error) {
	var err error
	if c.function, err = c.functions.resolve(&c.request.Call); err != nil {
		return nil, err
	}
	invoke, problems := c.prepare()
	if len(problems) > 0 {
		return nil, problems
	}
	result, err := invoke(ctx)
	if err != nil {
		return nil, err
	}
	return forrst.Encode(result)
}

// prepare checks extensions and arguments and returns the function with everything
// that its extensions do around it. Nothing has happened yet when it returns.
func (c *call) prepare() (Invocation, forrst.Errors) {
	var problems forrst.Errors
	var wrappers []wrapper
	for i := range c.request.Extensions {
		wrap, found := c.prepareExtension(i)
		for _, problem := range found {
			problems.Add(problem)
		}
		if wrap != nil {
			wrappers = append(wrappers, wrap)
		}
	}
	invoke, found := c.function.Prepare(&c.request)
	for _, problem := range found {
		problems.Add(problem)
	}
	for _, wrap := range slices.Backward(wrappers) {
		invoke = wrap(invoke)
	}
	return invoke, problems
}

// fail makes the response a failure. Extension entries stay: they tell what was done
// before it failed.
func (c *call) fail(problems forrst.Errors) {
	c.response.Result = nil
	c.response.Errors = problems
}

// report adds an extension entry to the response. It repeats the URN of the request,
// of the two dialects the one that the caller understands.
func (c *call) report(position int, data any) {
	c.response.Extensions = append(c.response.Extensions, forrst.ResponseExtension{
		URN:  c.request.Extensions[position].URN,
		Data: forrst.MustEncode(data),
	})
}
