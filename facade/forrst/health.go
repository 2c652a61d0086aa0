package forrst

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// self names the replica that answers, as if it were a component.
const self = "self"

// healthReport is the result of health, and of ping, which has the first two members (docs/forrst.md, sections 9.1 and 9.2).
type healthReport struct {
	Status    healthStatus `json:"status"`
	Timestamp string       `json:"timestamp"`
	Version   string       `json:"version,omitempty"`
	// Components is nil if only the replica was asked about.
	Components map[string]componentHealth `json:"components,omitempty"`
}

// prepareHealth tells how well the service works. It succeeds whatever it finds: probes of Kubernetes have endpoints of their
// own.
func (c *call) prepareHealth() Invocation {
	fields := c.readArguments(&c.faults)
	components := c.readComponents(&fields)
	withDetails := fields.Bool("include_details", true)
	return func(ctx context.Context) (any, error) {
		report := healthReport{Timestamp: envelope.FormatTimestamp(c.config.Clock.Now())}
		if len(components) == 0 {
			return report, nil
		}
		report.Version = c.config.Version
		report.Components = c.checkComponents(ctx, components)
		for name, found := range report.Components {
			report.Status = max(report.Status, found.Status)
			if !withDetails {
				report.Components[name] = componentHealth{Status: found.Status}
			}
		}
		return report, nil
	}
}

// readComponents returns the components that are asked about. None is the replica itself.
func (c *call) readComponents(fields *envelope.Fields) []Component {
	name, ok := fields.Text("component")
	if name == self {
		return nil
	}
	var components []Component
	for _, source := range c.config.Components {
		components = append(components, source.Components()...)
	}
	if !ok {
		return components
	}
	at := slices.IndexFunc(components, func(component Component) bool { return component.Name == name })
	if at < 0 {
		fields.Fail("component", "is not known")
		return nil
	}
	return components[at : at+1]
}

// preparePing answers at once (docs/forrst.md, section 9.1). With the lock extension it is also how clients hold a lock
// without a function of their own.
func (c *call) preparePing() Invocation {
	return func(context.Context) (any, error) {
		return healthReport{Timestamp: envelope.FormatTimestamp(c.config.Clock.Now())}, nil
	}
}

const (
	// healthCheckTimeout is how long the check of a component may take.
	healthCheckTimeout = 2 * time.Second
	// healthKnownFor is how long what a check has found is told to later callers.
	healthKnownFor = time.Second
)

// Component is a part of the service whose health is told (docs/forrst.md, section 9.2).
type Component struct {
	// Name is one word in lower case; what calls another service has a name that ends in "_api". Not "self", which is the
	// replica. Required.
	Name string
	// Check returns nil if the component is healthy, an error that matches [ErrDegraded] if it works with difficulties, and any
	// other error if it does not. Errors go to the log and not to callers. It is called once at a time and at most once a
	// second, and must return soon after ctx has ended, which it does after two seconds. Required.
	Check func(ctx context.Context) error
}

// ErrDegraded means that a component works, but not as well as it should.
var ErrDegraded = errors.New("degraded")

// ComponentSource tells the components that there are at the moment. It is safe for concurrent use.
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

// healthChecks are the last checks of components, by name: however often callers ask for the health of the service, each
// component is asked at most once a second. It is safe for concurrent use.
type healthChecks struct {
	mu     sync.Mutex
	checks map[string]*healthCheck
}

// healthCheck is one check, which may be under way.
type healthCheck struct {
	start  time.Time
	isDone chan struct{} // closed when found is set
	found  componentHealth
}

// checkComponents checks all components at once.
func (h *Handler) checkComponents(ctx context.Context, components []Component) map[string]componentHealth {
	checks := make([]*healthCheck, len(components))
	for i, component := range components {
		checks[i] = h.beginCheck(component)
	}
	byName := make(map[string]componentHealth, len(components))
	for i, component := range components {
		select {
		case <-checks[i].isDone:
			byName[component.Name] = checks[i].found
		case <-ctx.Done():
			byName[component.Name] = componentHealth{Status: unhealthy, Message: messageLate}
		}
	}
	return byName
}

// beginCheck returns the last check of a component if that is under way or new enough, or else begins one, which goes on when
// its caller has gone.
func (h *Handler) beginCheck(component Component) *healthCheck {
	h.health.mu.Lock()
	defer h.health.mu.Unlock()
	now := h.config.Clock.Now()
	if last := h.health.checks[component.Name]; last != nil && !last.isOld(now) {
		return last
	}
	// Routes come and go, and so do the components that are their services.
	maps.DeleteFunc(h.health.checks, func(_ string, last *healthCheck) bool { return last.isOld(now) })
	check := &healthCheck{start: now, isDone: make(chan struct{})}
	h.health.checks[component.Name] = check
	h.config.Server.Background().Run(func(ctx context.Context) {
		defer close(check.isDone)
		check.found = h.checkComponent(ctx, component, check.start)
	})
	return check
}

// isOld reports whether a check is over and what it has found is no longer told. Its age is less than zero if the clock was
// set back.
func (c *healthCheck) isOld(now time.Time) bool {
	select {
	case <-c.isDone:
		age := now.Sub(c.start)
		return age < 0 || age >= healthKnownFor
	default:
		return false
	}
}

const messageLate = "The component did not answer in time"

func (h *Handler) checkComponent(ctx context.Context, component Component, start time.Time) componentHealth {
	ctx, cancel := context.WithTimeout(ctx, healthCheckTimeout)
	defer cancel()
	err := runCheck(ctx, component.Check)
	health := componentHealth{
		Status:    unhealthy,
		Latency:   new(envelope.NewMilliseconds(max(0, h.config.Clock.Since(start)))),
		LastCheck: envelope.FormatTimestamp(start),
	}
	switch {
	case err == nil:
		health.Status = healthy
		return health
	case errors.Is(err, ErrDegraded):
		health.Status, health.Message = degraded, "The component works with difficulties"
	case ctx.Err() != nil:
		health.Message = messageLate
	default:
		health.Message = "The component does not work"
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
