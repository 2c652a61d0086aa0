package forrst

import (
	"context"
	"slices"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// self names the replica that answers, as if it were a component.
const self = "self"

// healthReport is the result of health (docs/forrst.md, section 9.2).
type healthReport struct {
	Status    healthStatus `json:"status"`
	Timestamp string       `json:"timestamp"`
	Version   string       `json:"version,omitempty"`
	// Components is nil if only the replica was asked about.
	Components map[string]componentHealth `json:"components,omitempty"`
}

// prepareHealth tells how well the service works. It succeeds whatever it finds: probes of
// Kubernetes have endpoints of their own.
func (c *call) prepareHealth() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
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
	}, problems
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

type pong struct {
	Status    string `json:"status"`
	Timestamp string `json:"timestamp"`
}

// preparePing answers at once (docs/forrst.md, section 9.1). With the lock extension it is
// also how clients hold a lock without a function of their own.
func (c *call) preparePing() (Invocation, envelope.Errors) {
	return func(context.Context) (any, error) {
		return pong{Status: "healthy", Timestamp: envelope.FormatTimestamp(c.config.Clock.Now())}, nil
	}, nil
}
