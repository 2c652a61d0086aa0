package rest

import (
	"context"

	"forrst.dev/lock-operator/tracing"
)

// beginTrace begins the trace of the call, unless its headers decline that.
func (c *call) beginTrace(ctx context.Context) {
	tracer := c.config.Server.Tracer()
	if tracer.Declines(c.request.Header) {
		return
	}
	c.trace = tracer.Arrive(doorName, c.request)
	c.request = c.request.WithContext(c.trace.Begin(ctx, tracing.ParentOfHeaders(ctx, c.request.Header)))
}

// endTrace tells what has come of the call.
func (c *call) endTrace(ctx context.Context) {
	result := tracing.Result{
		Operation: c.operationName(), Namespace: c.caller.Namespace, Key: c.refusedLock(),
		Outcome: c.outcome, Status: c.status,
	}
	if c.granted != nil {
		result.FencingToken, _ = c.granted.FencingToken()
	}
	c.trace.End(ctx, result)
}
