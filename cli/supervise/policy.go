package supervise

import (
	"fmt"
	"time"
)

// OnLost is what happens to the command when the hold ends, or is about to end, before the command does.
type OnLost string

const (
	// OnLostKill sends TERM in time for the grace, and KILL before the hold ends. A hold that has ended
	// without notice is answered by KILL at once.
	OnLostKill OnLost = "kill"
	// OnLostTerm sends TERM in time for the grace. The command may run on while another has the hold.
	OnLostTerm OnLost = "term"
	// OnLostIgnore does nothing. The command may run on while another has the hold.
	OnLostIgnore OnLost = "ignore"
)

// Policy says when a command is stopped.
type Policy struct {
	OnLost OnLost
	// Grace is the time between TERM and KILL. It is taken from the end of the hold.
	Grace time.Duration
	// Margin is how long before the end of the hold KILL is sent. The watcher sends it after half of that, if it has to.
	Margin time.Duration
}

const (
	// MinTTL is the shortest ttl of a hold that leaves time for renewals, grace and margin.
	MinTTL = 2 * time.Second
	// maxDefaultGrace bounds the grace of locks with a long ttl.
	maxDefaultGrace = 10 * time.Second
	// maxMargin is the time that a busy machine may take to end processes that were killed.
	maxMargin = 2 * time.Second
)

// NewPolicy returns the policy for holds that are prolonged to the ttl at each third of it. A negative grace
// means the default, a quarter of the ttl and at most 10 s. Zero means KILL without TERM. The error says
// which value is out of bounds.
func NewPolicy(onLost OnLost, ttl, grace time.Duration) (Policy, error) {
	if ttl < MinTTL {
		return Policy{}, fmt.Errorf("the ttl is %s, and must be at least %s", ttl, MinTTL)
	}
	margin := min(ttl/5, maxMargin)
	// Half of the ttl is for renewals: one at a third of it, and some that repeat it.
	longest := ttl/2 - margin
	if grace < 0 {
		grace = min(ttl/4, maxDefaultGrace)
	}
	if grace > longest {
		return Policy{}, fmt.Errorf("the grace is %s, and must be at most %s, so that half of the ttl is left for renewals", grace, longest)
	}
	switch onLost {
	case OnLostKill, OnLostTerm, OnLostIgnore:
	default:
		return Policy{}, fmt.Errorf("%q is none of %s, %s, %s", onLost, OnLostKill, OnLostTerm, OnLostIgnore)
	}
	return Policy{OnLost: onLost, Grace: grace, Margin: margin}, nil
}

// Stage is how far the stop of a command has gone. It only grows.
type Stage int

const (
	// StageRun is that of a command that may run.
	StageRun Stage = iota
	// StageTerm is that of a command that was told to end.
	StageTerm
	// StageKill is that of a command that is killed.
	StageKill
)

// At returns the stage for a hold with so much time left, and how much will be left when
// the next stage begins. There is no next one if that is not positive.
func (p Policy) At(left time.Duration) (stage Stage, next time.Duration) {
	switch {
	case p.OnLost == OnLostIgnore:
		return StageRun, 0
	case p.OnLost == OnLostKill && left <= p.Margin:
		return StageKill, 0
	case left <= p.Margin+p.Grace:
		if p.OnLost == OnLostTerm {
			return StageTerm, 0
		}
		return StageTerm, p.Margin
	default:
		return StageRun, p.Margin + p.Grace
	}
}
