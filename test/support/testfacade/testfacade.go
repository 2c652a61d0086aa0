// Package testfacade puts a façade together for tests, as cmd/lock-operator does.
package testfacade

import (
	"cmp"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/facade/rest"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/facade/ui"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// Settings are what tests choose about a façade. Zero fields have the defaults of the
// product, and Limits those of [rules.DefaultLimits].
type Settings struct {
	// Locks are the locks that are served. Required.
	Locks lock.Backend
	// Namespace is required unless Access is set.
	Namespace string
	Access    access.Access
	Limits    rules.Limits
	Holders   locks.HolderChecker
	MaxBlock  time.Duration
	// ClockSkewAllowance is how long after its expireTime others leave a lock alone.
	ClockSkewAllowance time.Duration
	Components         []forrst.ComponentSource
	Routing            *forrst.Routing
	Version            string
	Clock              clock.WithTicker
	Logger             logr.Logger
	// Server needs a listener only if the test starts the server.
	Server server.Options
}

// New returns a server with both doors, which serves HTTP with or without being
// started.
func New(settings Settings) (*server.Server, error) {
	served, _, err := NewWithDoor(settings)
	return served, err
}

// NewWithDoor is [New] for tests that change the Forrst door.
func NewWithDoor(settings Settings) (*server.Server, *forrst.Handler, error) {
	if settings.Limits == (rules.Limits{}) {
		settings.Limits = rules.DefaultLimits()
	}
	if settings.Access == nil && settings.Server.Limits == (limits.Limits{}) {
		// As with --facade-auth=none: callers are not told apart.
		settings.Server.Limits = limits.Limits{Shares: 1}
		settings.Server.MaxConnectionsPerAddress = cmp.Or(settings.Server.MaxConnections, server.DefaultMaxConnections)
	}
	control, err := access.New(access.Options{Access: settings.Access, Namespace: settings.Namespace, Clock: settings.Clock})
	if err != nil {
		return nil, nil, err
	}
	settings.Server.Access = control
	served, err := server.New(settings.Server)
	if err != nil {
		return nil, nil, err
	}
	locked, err := locks.New(locks.Options{
		Backend: settings.Locks, Limits: settings.Limits, Holders: settings.Holders, Logger: settings.Logger, Clock: settings.Clock,
	})
	if err != nil {
		return nil, nil, err
	}
	door, err := forrst.New(forrst.Config{
		Server: served, Access: control, Locks: locked,
		MaxBlock: settings.MaxBlock, Components: settings.Components, Routing: settings.Routing,
		Version: settings.Version, Clock: settings.Clock, Logger: settings.Logger,
	})
	if err != nil {
		return nil, nil, err
	}
	served.Mount(door)
	plain, err := rest.New(rest.Config{
		Server: served, Access: control, Locks: locked, MaxWait: settings.MaxBlock,
		ClockSkewAllowance: &settings.ClockSkewAllowance, Clock: settings.Clock, Logger: settings.Logger,
	})
	if err != nil {
		return nil, nil, err
	}
	served.Mount(plain)
	page, err := ui.New()
	if err != nil {
		return nil, nil, err
	}
	served.Mount(page)
	return served, door, nil
}
