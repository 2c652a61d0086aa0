package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/engine"
)

// defaultShutdownDelay is how long, with a margin, the nodes of a cluster take to stop
// sending new connections to an ending pod.
const defaultShutdownDelay = 5 * time.Second

// engineStopTimeout leaves time for the work after the façade's drain timeout: the releases
// of its calls, and the grants that its engine must end.
const engineStopTimeout = 20 * time.Second

// facadeServerOptions are the flags of the façade's server.
type facadeServerOptions struct {
	tlsCertFile, tlsKeyFile     string
	calls                       limits.Limits
	maxConnections              int
	maxConnectionsPerAddress    int
	shutdownDelay, drainTimeout time.Duration
	line                        engine.WaiterLimits
}

// Those that wait for a lock at all replicas stand in one line.
const (
	defaultLinePerLock      = 10_000
	defaultLinePerNamespace = 20_000
	defaultLinePerCaller    = 5_000
)

func (o *facadeServerOptions) bindFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.tlsCertFile, "facade-tls-cert-file", "", "The façade's certificate in PEM, read again when it changes. With it, the façade serves TLS only.")
	flags.StringVar(&o.tlsKeyFile, "facade-tls-key-file", "", "The key of that certificate in PEM.")
	flags.IntVar(&o.calls.InFlight, "facade-max-in-flight", limits.DefaultMaxInFlight, "How many calls may be in flight at a time on one replica, whether they run or wait for a lock.")
	flags.IntVar(&o.calls.Shares, "facade-shares", limits.DefaultShares, "Into how many shares each limit of one replica is divided. A caller may use one, and the service accounts of one namespace two together. 1 for no shares.")
	flags.IntVar(&o.line.PerLock, "facade-max-line-per-lock", defaultLinePerLock, "How many callers may wait for one lock, of all replicas together if they share their lines. 0 for any number.")
	flags.IntVar(&o.line.PerNamespace, "facade-max-line-per-namespace", defaultLinePerNamespace, "How many may wait for the locks of one namespace whose lines one replica has. 0 for any number.")
	flags.IntVar(&o.line.PerHolder, "facade-max-line-per-caller", defaultLinePerCaller, "How many calls of one caller may wait for locks whose lines one replica has. 0 for any number.")
	flags.IntVar(&o.calls.RatePerCaller, "facade-max-rate-per-caller", limits.DefaultRatePerCaller, "How many calls, and reviews of rights, of one caller may cost the API server something each second on one replica, and twice as many of the service accounts of one namespace together; twice as many renewals and releases. 0 for any number.")
	flags.IntVar(&o.calls.BodyBytes, "facade-max-body-bytes", limits.DefaultMaxBodyBytes, "How many bytes of requests, and of the answers of routed functions, are kept at a time on one replica.")
	flags.IntVar(&o.maxConnections, "facade-max-connections", server.DefaultMaxConnections, "How many connections to the façade are open at a time on one replica.")
	flags.IntVar(&o.maxConnectionsPerAddress, "facade-max-connections-per-address", 0, "How many of them may come from one address, of IPv6 from a network of 64 bits; 0 for a tenth.")
	flags.DurationVar(&o.shutdownDelay, "facade-shutdown-delay", defaultShutdownDelay, "How long the façade still serves as before when it is to stop, but says that it is not ready.")
	flags.DurationVar(&o.drainTimeout, "facade-drain-timeout", server.DefaultDrainTimeout, "How long calls may still run after that.")
}

func (o *facadeServerOptions) validate() error {
	if (o.tlsCertFile == "") != (o.tlsKeyFile == "") {
		return errors.New("--facade-tls-cert-file and --facade-tls-key-file: both or none must be given")
	}
	for name, limit := range map[string]int{
		"facade-max-in-flight":   o.calls.InFlight,
		"facade-shares":          o.calls.Shares,
		"facade-max-connections": o.maxConnections,
	} {
		if limit <= 0 {
			return fmt.Errorf("--%s: must be more than 0", name)
		}
	}
	for name, share := range map[string]int{
		"facade-max-line-per-lock":           o.line.PerLock,
		"facade-max-line-per-namespace":      o.line.PerNamespace,
		"facade-max-line-per-caller":         o.line.PerHolder,
		"facade-max-rate-per-caller":         o.calls.RatePerCaller,
		"facade-max-connections-per-address": o.maxConnectionsPerAddress,
	} {
		if share < 0 {
			return fmt.Errorf("--%s: must not be negative", name)
		}
	}
	switch {
	case o.calls.BodyBytes < forrst.MaxRequestBytes:
		return fmt.Errorf("--facade-max-body-bytes: must be at least %d, the largest request", forrst.MaxRequestBytes)
	case o.shutdownDelay < 0:
		return errors.New("--facade-shutdown-delay: must not be negative")
	case o.drainTimeout <= 0:
		return errors.New("--facade-drain-timeout: must be more than 0s")
	}
	return nil
}

// withoutShares lets any caller use the whole. Without authentication all callers are programs of one
// machine, and not told apart.
func (o *facadeServerOptions) withoutShares() {
	o.calls.Shares, o.calls.RatePerCaller = 1, 0
	o.maxConnectionsPerAddress = o.maxConnections
	o.line.PerNamespace, o.line.PerHolder = 0, 0
}

// stopTimeout is how long a replica may take to stop.
func (o *facadeServerOptions) stopTimeout() time.Duration {
	return drainLineTimeout + o.shutdownDelay + o.drainTimeout + engineStopTimeout + server.LingerTimeout
}

// How the façade authenticates its callers.
const (
	authNone  = "none"
	authToken = "token"
)

// defaultAudience is an audience of the façade's own: a token for it is of no use at the API server,
// and a token for the API server is of none here.
const defaultAudience = "lock-operator.forrst.dev"

// facadeAuthOptions are the flags for the authentication of the façade's callers.
type facadeAuthOptions struct {
	mode, audiences string
	// isInsecure says that tokens may be read in transit.
	isInsecure bool
}

func (o *facadeAuthOptions) bindFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.mode, "facade-auth", authToken, "How the façade authenticates its callers: token, by bearer tokens that the API server reviews, or none, on loopback only.")
	flags.StringVar(&o.audiences, "facade-audiences", defaultAudience, "Audiences, separated by commas, of which bearer tokens must be for one.")
	flags.BoolVar(&o.isInsecure, "facade-insecure-plaintext", false, "Take bearer tokens without TLS on other addresses than loopback, where they can be read in transit.")
}

func (o *facadeAuthOptions) validate(address string, hasTLS bool) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("--facade-bind-address: %w", err)
	}
	switch {
	case o.mode != authNone && o.mode != authToken:
		return fmt.Errorf("--facade-auth: %q is neither %s nor %s", o.mode, authToken, authNone)
	case o.mode == authNone && !isLoopback(address):
		return fmt.Errorf("--facade-bind-address: %q is not a loopback address; with --facade-auth=none the façade must not be reached from elsewhere", address)
	case o.mode == authToken && !isLoopback(address) && !hasTLS && !o.isInsecure:
		return fmt.Errorf("--facade-bind-address: on %q bearer tokens could be read in transit; set --facade-tls-cert-file, or --facade-insecure-plaintext if something else encrypts the connections", address)
	case o.mode == authNone && o.audiences != defaultAudience:
		return errors.New("--facade-audiences: needs --facade-auth=token")
	case slices.Contains(o.audienceList(), ""):
		return fmt.Errorf("--facade-audiences: %q has an empty one; to take tokens of the API server, name its audience", o.audiences)
	}
	return nil
}

func (o *facadeAuthOptions) audienceList() []string { return strings.Split(o.audiences, ",") }
