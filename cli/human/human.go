// Package human writes times as people say them.
package human

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Never stands for a time that is not known or that there is none of.
const Never = "-"

// For returns a length of time, such as "3m12s" or "5d". One below zero is "0s".
func For(length time.Duration) string {
	return duration.HumanDuration(max(length, 0))
}

// Times writes points in time.
type Times struct {
	// Now is the time of the service.
	Now time.Time
	// Exact has points in time written in RFC 3339, for machines (--show-times).
	Exact bool
}

// Since returns how long ago a time was, such as "3m12s"; with Exact, the time itself.
// The zero time is [Never].
func (t Times) Since(at time.Time) string { return t.format(at, For(t.Now.Sub(at))) }

// During says for how long something has been so: "for 3m12s"; with Exact, "since" and the time.
func (t Times) During(since time.Time) string {
	if t.Exact {
		return "since " + t.Since(since)
	}
	return "for " + t.Since(since)
}

// Ago is [Times.Since] for sentences: "3m12s ago".
func (t Times) Ago(at time.Time) string { return t.format(at, For(t.Now.Sub(at))+" ago") }

// Renewed returns when something that began was last renewed, as [Times.Ago], or "not yet".
func (t Times) Renewed(began, renewed time.Time) string {
	if renewed.Equal(began) {
		return "not yet"
	}
	return t.Ago(renewed)
}

// Left returns how much time is left until a time, such as "4m", or "expired"; with
// Exact, the time itself. The zero time is [Never].
func (t Times) Left(until time.Time) string {
	if !until.After(t.Now) {
		return t.format(until, "expired")
	}
	return t.format(until, For(until.Sub(t.Now)))
}

// In is for sentences about a time to come or past: "in 4m" or "4m ago".
func (t Times) In(at time.Time) string {
	if !at.After(t.Now) {
		return t.Ago(at)
	}
	return t.format(at, "in "+For(at.Sub(t.Now)))
}

// format returns the text that is relative to now, unless it is not wanted or there is no time.
func (t Times) format(at time.Time, relative string) string {
	switch {
	case at.IsZero():
		return Never
	case t.Exact:
		return at.UTC().Format(time.RFC3339)
	default:
		return relative
	}
}
