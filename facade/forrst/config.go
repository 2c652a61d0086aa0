package forrst

import (
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/facade/server"
)

// Config configures a [Handler].
type Config struct {
	// Server has what all doors share. [server.Server.Mount] must follow. Required.
	Server *server.Server
	// Access decides about callers. Required.
	Access *access.Control
	// Locks are the locks that are served. Required.
	Locks *locks.Locks
	// MaxBlock is the longest that a call may wait for a lock; a caller that wants to wait
	// longer calls again. Zero means [locks.DefaultMaxWait].
	MaxBlock time.Duration
	// Components tell what health is made of, each time that it is asked for. They have
	// names of their own.
	Components []ComponentSource
	// Routing finds and calls functions of other services. Nil means that there are
	// none.
	Routing *Routing

	// Version is the version of the service in its capabilities. Empty leaves it out.
	Version string
	// Clock tells the time. Nil means the real clock.
	Clock clock.WithTicker
	// Logger gets what callers are not told: the causes of internal errors, and what
	// goes wrong when a lock is released after its call. Zero discards.
	Logger logr.Logger
}

func (c *Config) validate() error {
	switch {
	case c.Server == nil || c.Access == nil || c.Locks == nil:
		return errors.New("facade: Server, Access and Locks are required")
	case c.Routing != nil && (c.Routing.Routes == nil || c.Routing.Client == nil):
		return errors.New("facade: Routing needs Routes and a Client")
	case c.MaxBlock < 0:
		return errors.New("facade: the maximum block must not be negative")
	}
	return nil
}

func (c *Config) setDefaults() {
	if c.MaxBlock == 0 {
		c.MaxBlock = locks.DefaultMaxWait
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}
