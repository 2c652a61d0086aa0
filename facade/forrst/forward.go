package forrst

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/routes"
)

// forwarding returns the function that runs at the end of the route.
func (c *call) forwarding(route routes.Route) Invocation {
	return func(ctx context.Context) (any, error) {
		request := c.forwarded(ctx, route)
		answer, err := c.exchange(ctx, route, request.call())
		if failure, ok := errors.AsType[*routes.CallError](err); ok {
			c.isUnstarted = failure.IsUnsent
		}
		switch {
		case err == nil:
			c.isUnstarted = isUnknownFunction(answer)
			return c.merge(answer, request)
		case ctx.Err() != nil:
			// Whoever asked has stopped waiting.
			return nil, ctx.Err()
		}
		return nil, c.dependencyProblem(route, err)
	}
}

// isUnknownFunction reports whether a service says that it does not have the function,
// which it then cannot have started.
func isUnknownFunction(answer *envelope.Response) bool {
	return slices.ContainsFunc(answer.Errors, func(problem envelope.Error) bool {
		return problem.Code == envelope.FunctionNotFound || problem.Code == envelope.VersionNotFound
	})
}

// exchange calls the service. Inside a lock that ends with the function, the lock is kept
// meanwhile, and the exchange goes on when the caller has gone: it is how to learn when
// the function is over.
func (c *call) exchange(ctx context.Context, route routes.Route, request routes.Call) (*envelope.Response, error) {
	if c.kept.granted == nil {
		return c.config.Routing.Client.Do(ctx, route, request)
	}
	keeper := c.begin(route.Timeout)
	c.keeper = keeper
	answers := make(chan answered, 1)
	c.background.run(func() {
		defer close(keeper.work.exchanged)
		answer := c.do(c.background.ctx, route, request)
		if !answer.mayRun() {
			keeper.work.finish()
		}
		answers <- answer
	})
	renew := c.config.Timers.NewTimer(keeper.renewAt.Sub(c.config.Timers.Now()))
	defer renew.Stop()
	for {
		select {
		case answer := <-answers:
			return answer.response, answer.err
		case <-ctx.Done():
			c.leavePlaceTo(answers)
			return nil, ctx.Err()
		case <-renew.C():
			keeper.start()
		}
	}
}

// answered is what came of a call of a service.
type answered struct {
	response *envelope.Response
	err      error
}

// do calls the service, in a goroutine whose panics nobody else would catch.
func (c *call) do(ctx context.Context, route routes.Route, request routes.Call) (answer answered) {
	defer func() {
		if cause := recover(); cause != nil {
			answer.err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	response, err := c.config.Routing.Client.Do(ctx, route, request)
	return answered{response, err}
}

// mayRun reports whether the service may still be at work.
func (a *answered) mayRun() bool {
	failure, ok := errors.AsType[*routes.CallError](a.err)
	return a.err != nil && (!ok || failure.MayRun)
}

// dependencyDetails are the details of a failure of the service that a function runs in.
type dependencyDetails struct {
	Dependency string      `json:"dependency"`
	Error      string      `json:"dependency_error"`
	Kind       routes.Kind `json:"kind"`
	// Status is the HTTP status of an answer without an envelope.
	Status int `json:"status,omitempty"`
	// MayRun says that the function may still be running, in which case a lock that ends
	// with it is kept until the timeout of the route.
	MayRun bool `json:"may_still_run,omitempty"`
}

// dependencyProblem tells the caller what is wrong with the service, and the log why.
func (c *call) dependencyProblem(route routes.Route, err error) error {
	failure, ok := errors.AsType[*routes.CallError](err)
	if !ok {
		return err
	}
	c.config.Logger.Info("The service of a routed function has failed",
		"function", c.request.Call.Function, "url", route.URL, "kind", failure.Kind, "reason", failure.Error())
	problem := envelope.Error{
		Code:    envelope.DependencyError,
		Message: "The service of the function has failed: " + failure.Reason,
	}.With(dependencyDetails{
		Dependency: route.Host, Error: failure.Reason, Kind: failure.Kind, Status: failure.Status, MayRun: failure.MayRun,
	})
	return &problem
}
