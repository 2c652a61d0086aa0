package forrst

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// deadlineData is the data of the deadline extension (docs/forrst.md, section 10.1).
type deadlineData struct {
	Specified   json.RawMessage   `json:"specified"` // as sent
	Elapsed     envelope.Duration `json:"elapsed"`
	Remaining   envelope.Duration `json:"remaining"`
	Utilization float64           `json:"utilization"` // the part of the time that was used, from 0 to 1
}

// errDeadline is the cause that ends the context of a call at its deadline.
var errDeadline = errors.New("the deadline of the call has passed")

// callDeadline is when a call must be over.
type callDeadline struct {
	specified json.RawMessage // as sent
	// length is measured from the receipt of the request. It is zero if the deadline had passed before.
	length time.Duration
}

// deadline is the extension that bounds the time of a call.
func (c *call) deadline(position int) wrapper {
	fields := c.readOptions(position, &c.faults)
	bound := c.readDeadline(&fields, c.request.Extensions[position].Options)
	return func(invoke Invocation) Invocation {
		return func(ctx context.Context) (any, error) {
			defer func() { c.reportDeadline(position, bound) }()
			return c.invokeWithin(ctx, bound, invoke)
		}
	}
}

// invokeWithin runs the function until the deadline. There is no late success: the caller has stopped waiting for it.
func (c *call) invokeWithin(ctx context.Context, bound *callDeadline, invoke Invocation) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, bound.length-c.elapsed(), errDeadline)
	defer cancel()
	if ctx.Err() == nil {
		result, err := invoke(ctx)
		if !errors.Is(context.Cause(ctx), errDeadline) {
			return result, err
		}
		c.undoUnanswered(ctx, err)
	}
	if !errors.Is(context.Cause(ctx), errDeadline) {
		return nil, ctx.Err()
	}
	return nil, new(envelope.Error{Code: envelope.DeadlineExceeded, Message: "The deadline has passed"}.With(struct {
		Deadline json.RawMessage   `json:"deadline"`
		Elapsed  envelope.Duration `json:"elapsed"`
	}{bound.specified, envelope.NewMilliseconds(c.elapsed())}))
}

func (c *call) reportDeadline(position int, bound *callDeadline) {
	elapsed := c.elapsed()
	data := deadlineData{
		Specified:   bound.specified,
		Elapsed:     envelope.NewMilliseconds(elapsed),
		Remaining:   envelope.NewMilliseconds(max(0, bound.length-elapsed)),
		Utilization: 1,
	}
	if elapsed < bound.length {
		data.Utilization = float64(elapsed) / float64(bound.length)
	}
	c.report(position, data)
}

// readDeadline reads any of the four forms of a deadline. If there are several, the first to pass counts. It returns nil if
// none can be read. Sent are the options as sent, which may themselves be a duration, or a time with a unit of its own.
func (c *call) readDeadline(fields *envelope.Fields, sent json.RawMessage) *callDeadline {
	var first *callDeadline
	add := func(specified json.RawMessage, length time.Duration) {
		if first == nil || length < first.length {
			first = &callDeadline{bytes.Clone(specified), length}
		}
	}
	addTime := func(name string, specified json.RawMessage) {
		text, ok := fields.Text(name)
		if !ok {
			return
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			fields.Fail(name, "must be an RFC 3339 time with a zone, such as 2026-02-03T04:05:06Z")
			return
		}
		// However long ago it was, the difference to now must not overflow.
		add(specified, max(0, at.Sub(c.Start)))
	}
	deadline, timeout := fields.Raw("deadline"), fields.Raw("timeout")
	if deadline != nil {
		addTime("deadline", deadline)
	}
	if length := fields.Duration("timeout", envelope.DurationLimits{}); length != nil {
		add(timeout, length.Length)
	}
	if fields.Raw("value") == nil && (deadline != nil || timeout != nil) {
		return first
	}
	if string(fields.Raw("unit")) == `"iso8601"` {
		fields.Require("value")
		addTime("value", sent)
	} else if length := fields.AsDuration(envelope.DurationLimits{}); length != nil {
		add(sent, length.Length)
	}
	return first
}
