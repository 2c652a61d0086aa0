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
	// Specified is as sent.
	Specified json.RawMessage   `json:"specified"`
	Elapsed   envelope.Duration `json:"elapsed"`
	Remaining envelope.Duration `json:"remaining"`
	// Utilization is the part of the time that was used, from 0 to 1.
	Utilization float64 `json:"utilization"`
}

// errDeadline is the cause that ends the context of a call at its deadline.
var errDeadline = errors.New("the deadline of the call has passed")

// callDeadline is when a call must be over.
type callDeadline struct {
	// specified is the deadline as sent.
	specified json.RawMessage
	// length is measured from the receipt of the request. It is zero if the deadline had
	// passed before.
	length time.Duration
}

// deadline is the extension that bounds the time of a call.
func (c *call) deadline(position int) (wrapper, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readOptions(position, &problems)
	bound := c.readDeadline(&fields, c.request.Extensions[position].Options)
	if len(problems) > 0 {
		return nil, problems
	}
	return func(invoke Invocation) Invocation {
		return func(ctx context.Context) (any, error) {
			defer func() { c.report(position, bound.data(c.elapsed())) }()
			return c.invokeWithin(ctx, bound, invoke)
		}
	}, nil
}

// invokeWithin runs the function until the deadline. There is no late success: the
// caller has stopped waiting for it.
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
	problem := envelope.Error{Code: envelope.DeadlineExceeded, Message: "The deadline has passed"}.With(struct {
		Deadline json.RawMessage   `json:"deadline"`
		Elapsed  envelope.Duration `json:"elapsed"`
	}{bound.specified, envelope.NewMilliseconds(c.elapsed())})
	return nil, &problem
}

func (d *callDeadline) data(elapsed time.Duration) deadlineData {
	data := deadlineData{
		Specified:   d.specified,
		Elapsed:     envelope.NewMilliseconds(elapsed),
		Remaining:   envelope.NewMilliseconds(max(0, d.length-elapsed)),
		Utilization: 1,
	}
	if elapsed < d.length {
		data.Utilization = float64(elapsed) / float64(d.length)
	}
	return data
}

// readDeadline reads any of the four forms of a deadline. If there are several, the
// first to pass counts.
//
// Sent are the options as sent.
func (c *call) readDeadline(fields *envelope.Fields, sent json.RawMessage) *callDeadline {
	var found []*callDeadline
	if raw := fields.Raw("deadline"); raw != nil {
		found = append(found, c.until(fields, "deadline", bytes.Clone(raw)))
	}
	if timeout := fields.Duration("timeout", envelope.DurationLimits{}); timeout != nil {
		found = append(found, &callDeadline{bytes.Clone(fields.Raw("timeout")), timeout.Length})
	}
	hasOther := fields.Raw("deadline") != nil || fields.Raw("timeout") != nil
	if fields.Raw("value") != nil || !hasOther {
		found = append(found, c.readPlainDeadline(fields, bytes.Clone(sent)))
	}
	var first *callDeadline
	for _, each := range found {
		if each != nil && (first == nil || each.length < first.length) {
			first = each
		}
	}
	return first
}

// readPlainDeadline reads options that are themselves a duration, or a time with a unit
// of its own. Sent are the options as sent.
func (c *call) readPlainDeadline(fields *envelope.Fields, sent json.RawMessage) *callDeadline {
	if string(fields.Raw("unit")) == `"iso8601"` {
		if fields.Raw("value") == nil {
			fields.Fail("value", "is required")
			return nil
		}
		return c.until(fields, "value", sent)
	}
	length := fields.AsDuration(envelope.DurationLimits{})
	if length == nil {
		return nil
	}
	return &callDeadline{sent, length.Length}
}

// until reads a time.
func (c *call) until(fields *envelope.Fields, name string, specified json.RawMessage) *callDeadline {
	text, ok := fields.Text(name)
	if !ok {
		return nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		fields.Fail(name, "must be an RFC 3339 time with a zone, such as 2026-02-03T04:05:06Z")
		return nil
	}
	// However long ago it was, the difference to now must not overflow.
	return &callDeadline{specified, max(0, at.Sub(c.Start))}
}
