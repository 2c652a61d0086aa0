package rest

import (
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/servertime"
)

// Config configures a [Handler].
type Config struct {
	// Server has what all doors share. [server.Server.Mount] must follow. Required.
	Server *server.Server
	// Access decides about callers. Required.
	Access *access.Control
	// Locks are the locks that are served. Required.
	Locks *locks.Locks
	// MaxWait is the longest that a call may wait for a lock; a caller that wants to wait longer
	// calls again. Zero means [locks.DefaultMaxWait].
	MaxWait time.Duration
	// ClockSkewAllowance is how long after its expireTime others leave a lock alone, see [rules.UntilReclaimable]. Streams
	// tell then that it has expired. Required; zero is for clocks that agree.
	ClockSkewAllowance *time.Duration
	// Clock tells the time. Nil means the real clock.
	Clock clock.WithTicker
	// Logger gets what callers are not told: the causes of internal errors. Zero discards.
	Logger logr.Logger

	encoded *encodedLocks
}

func (c *Config) validate() error {
	switch {
	case c.Server == nil || c.Access == nil || c.Locks == nil || c.ClockSkewAllowance == nil:
		return errors.New("facade: Server, Access, Locks and ClockSkewAllowance are required")
	case *c.ClockSkewAllowance < 0:
		return errors.New("facade: the clock skew allowance must not be negative")
	case c.MaxWait < 0:
		return errors.New("facade: the maximum wait must not be negative")
	}
	return nil
}

// sinceReclaimable returns the expireTime of the locks that others may end from now on. What ends or renews a lock before that
// is its holder's doing, though its change may arrive after the expireTime.
func (c *Config) sinceReclaimable() time.Time {
	return c.Clock.Now().Add(-*c.ClockSkewAllowance - servertime.MaxAhead(c.Clock))
}

// certain returns the latest expireTime of locks whose changes that arrive now were not made by their holders in time: what a
// watch shows it shows within half of the allowance, and others leave a lock alone for the whole.
func (c *Config) certain() time.Time { return c.Clock.Now().Add(-*c.ClockSkewAllowance / 2) }

func (c *Config) setDefaults() {
	if c.MaxWait == 0 {
		c.MaxWait = locks.DefaultMaxWait
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.encoded = newEncodedLocks()
}
