package forrst

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// healthCheckTimeout is how long the check of a component may take.
const healthCheckTimeout = 2 * time.Second

// Component is a part of the service whose health is told (docs/forrst.md, section 9.2).
type Component struct {
	// Name is one word in lower case; what calls another service has a name that ends in
	// "_api". Not "self", which is the replica. Required.
	Name string
	// Check returns nil if the component is healthy, an error that matches [ErrDegraded]
	// if it works with difficulties, and any other error if it does not. Errors go to the
	// log and not to callers. It is called concurrently, and must return soon after ctx
	// has ended, which it does after two seconds. Required.
	Check func(ctx context.Context) error
}

// ErrDegraded means that a component works, but not as well as it should.
var ErrDegraded = errors.New("degraded")

// ComponentSource tells the components that there are at the moment. It is safe for
// concurrent use.
type ComponentSource interface {
	Components() []Component
}

// Components is a source of components that stay the same.
type Components []Component

// Components implements [ComponentSource].
func (c Components) Components() []Component { return c }

// healthStatus is how well something works. A larger one is worse.
type healthStatus int

const (
	healthy healthStatus = iota
	degraded
	unhealthy
)

// MarshalText implements encoding.TextMarshaler.
func (s healthStatus) MarshalText() ([]byte, error) {
	return []byte([...]string{"healthy", "degraded", "unhealthy"}[s]), nil
}

// componentHealth is what a check has found.
type componentHealth struct {
	Status    healthStatus       `json:"status"`
	Latency   *envelope.Duration `json:"latency,omitempty"`
	Message   string             `json:"message,omitempty"`
	LastCheck string             `json:"last_check,omitempty"`
}

// checkComponents checks all components at once.
func (h *Handler) checkComponents(ctx context.Context, components []Component) map[string]componentHealth {
	found := make([]componentHealth, len(components))
	var checks sync.WaitGroup
	for i, component := range components {
		checks.Go(func() { found[i] = h.checkComponent(ctx, component) })
	}
	checks.Wait()
	byName := make(map[string]componentHealth, len(components))
	for i, component := range components {
		byName[component.Name] = found[i]
	}
	return byName
}

func (h *Handler) checkComponent(ctx context.Context, component Component) componentHealth {
	ctx, cancel := context.WithTimeout(ctx, healthCheckTimeout)
	defer cancel()
	start := h.config.Clock.Now()
	err := runCheck(ctx, component.Check)
	health := componentHealth{
		Latency:   new(envelope.NewMilliseconds(max(0, h.config.Clock.Since(start)))),
		LastCheck: envelope.FormatTimestamp(start),
	}
	switch {
	case err == nil:
		return health
	case errors.Is(err, ErrDegraded):
		health.Status, health.Message = degraded, "The component works with difficulties"
	case ctx.Err() != nil:
		health.Status, health.Message = unhealthy, "The component did not answer in time"
	default:
		health.Status, health.Message = unhealthy, "The component does not work"
	}
	h.config.Logger.V(1).Info("A component is not healthy", "component", component.Name, "reason", err.Error())
	return health
}

// runCheck takes a panic for a failure: one bad check must not take the replica down.
func runCheck(ctx context.Context, check func(context.Context) error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return check(ctx)
}
