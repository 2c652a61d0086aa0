package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/events"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/observe/enginemetrics"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/tracing"
)

const (
	controllerComponent = "controller"
	webhookComponent    = "webhook"
	facadeComponent     = "facade"
)

// maxFacadeBlock is the longest wait of the protocol's reference implementation.
const maxFacadeBlock = 24 * time.Hour

// How many Locks, and Jobs under locks, a namespace may have unless configured otherwise. Every replica
// keeps all of them in memory.
const (
	defaultMaxLocks = 5000
	defaultMaxJobs  = 5000
)

var allComponents = []string{controllerComponent, webhookComponent, facadeComponent}

// options are the flags of the command.
type options struct {
	components     string
	metricsAddr    string
	metricsCertDir string
	probeAddr      string

	// operatorUser, facadeUser, controllersUser and leaderElectionNamespace may be empty until learnIdentity.
	operatorUser            string
	facadeUser              string
	controllersUser         string
	leaderElect             bool
	leaderElectionNamespace string

	facadeAddr      string
	facadeNamespace string
	facadeMaxBlock  time.Duration
	facadeRoutes    string
	facadeServer    facadeServerOptions
	facadeAuth      facadeAuthOptions
	peers           peersOptions

	webhook      webhookOptions
	certificates certificateOptions
	guards       bool

	limits rules.Limits
	// maxOperatorRenewal bounds what the annotations of namespaces may allow.
	maxOperatorRenewal time.Duration
	maxLocks, maxJobs  int
	clockSkewAllowance time.Duration
	holderKinds        holderref.Kinds

	auditLog string
	// audit takes the records; see openAudit.
	audit           audit.Sink
	tracesAPIServer bool
	// tracer makes the spans of traces; nil if they are not sent.
	tracer *tracing.Tracer
	// events takes Events about locks, but for forced releases.
	events events.EventRecorder
	// metrics are those of engines and of what asks them.
	metrics *enginemetrics.Metrics
	// lockWatch is the stream of the one informer on locks.
	lockWatch *engine.WatchStream
}

func (o *options) bindFlags(flags *flag.FlagSet) {
	limits := rules.DefaultLimits()
	flags.StringVar(&o.components, "components", strings.Join(allComponents, ","), "What to run, separated by commas.")
	flags.StringVar(&o.metricsAddr, "metrics-bind-address", "0", "The address of the metrics, served over HTTPS to callers who may get /metrics; 0 to serve none.")
	flags.StringVar(&o.metricsCertDir, "metrics-cert-dir", "", "The folder with tls.crt and tls.key of the metrics, read again when they change. Empty for a certificate that the process signs itself.")
	flags.StringVar(&o.probeAddr, "health-probe-bind-address", ":8081", "The address of /healthz and /readyz; 0 to serve none.")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "Run the controllers on one replica at a time.")
	flags.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", "", "The namespace of the leader's Lease; empty for that of the operator's service account.")
	flags.StringVar(&o.operatorUser, "operator-user", "", "The user name of this process, as the webhook configuration names it; empty to ask the API server.")
	flags.StringVar(&o.facadeUser, "facade-user", "", "The user name of the process with the façade, whose writes of locks the webhook does not judge; empty if it is that of this process.")
	flags.StringVar(&o.controllersUser, "controllers-user", "", "The user name of the process with the controllers, whose writes of locks and Jobs the webhook does not judge, and whose Jobs the façade lets stand in its lines; empty if it is that of this process.")
	flags.StringVar(&o.facadeAddr, "facade-bind-address", "127.0.0.1:8080", "Where the façade listens. Without authentication it must be a loopback address.")
	flags.StringVar(&o.facadeNamespace, "facade-namespace", "default", "The namespace of the locks that the façade takes where it does not authenticate its callers. Otherwise each caller has one.")
	flags.DurationVar(&o.facadeMaxBlock, "facade-max-block", locks.DefaultMaxWait, "The longest that one call of the façade may wait for a lock, at most 24h.")
	flags.StringVar(&o.facadeRoutes, "facade-routes", "", "A YAML file that says which functions the façade forwards, and where to. It is read again when it changes. Empty for none.")
	o.facadeServer.bindFlags(flags)
	o.facadeAuth.bindFlags(flags)
	o.peers.bindFlags(flags)
	o.webhook.bindFlags(flags)
	o.certificates.bindFlags(flags)
	flags.BoolVar(&o.guards, "guards", false, "Let locks guard objects, and serve the webhook of config/guards, which sets this flag. Without it, no lock with guards is granted.")
	flags.DurationVar(&o.limits.DefaultTTL, "default-ttl", limits.DefaultTTL, "How long a lock lives that names no ttl.")
	flags.DurationVar(&o.limits.MaxTTL, "max-ttl", limits.MaxTTL, "The longest ttl that is granted, at most 24h.")
	flags.DurationVar(&o.limits.MaxExpireAhead, "max-expire-ahead", limits.MaxExpireAhead, "How far ahead a manifest may set a fixed expireTime, at most 8784h; 0 to grant none.")
	flags.DurationVar(&o.maxOperatorRenewal, "max-operator-renewal", rules.MaxExpireAhead, "How long after its acquisition the operator may renew a lock with renewalPolicy Operator, whatever its namespace allows; 0 to renew none.")
	flags.IntVar(&o.maxLocks, "max-locks-per-namespace", defaultMaxLocks, "How many locks a namespace may have; 0 for any number. Those of Jobs and of the operator count, but are never refused.")
	flags.IntVar(&o.maxJobs, "max-jobs-per-namespace", defaultMaxJobs, "How many Jobs with the label forrst.dev/lock a namespace may have, those that have ended included; 0 for any number.")
	flags.Var(&o.holderKinds, "holder-kinds", "The `kinds` of objects that locks may be held for besides Pods and Jobs, with their groups, separated by commas, such as Deployment.apps,ConfigMap. The operator needs get, list and watch on them.")
	flags.StringVar(&o.auditLog, "audit-log", stdoutAudit, "Where to write the audit, as lines of JSON: a file to append to, - for the standard output, or empty for nowhere.")
	flags.BoolVar(&o.tracesAPIServer, "trace-api-server", false, "Tell the API server of the traces of requests, for one that sends traces itself. It makes a small write about 10 % dearer for the API server.")
	flags.DurationVar(&o.clockSkewAllowance, "clock-skew-allowance", engine.DefaultClockSkewAllowance, "How long after its expiry a lock is left alone, for clocks that differ.")
}

func (o *options) validate(arguments []string) error {
	if len(arguments) > 0 {
		return fmt.Errorf("unexpected argument %q: this command takes flags only", arguments[0])
	}
	for component := range strings.SplitSeq(o.components, ",") {
		if !slices.Contains(allComponents, component) {
			return fmt.Errorf("--components: %q is none of %s", component, strings.Join(allComponents, ", "))
		}
	}
	if err := o.validateLimits(); err != nil {
		return err
	}
	if o.runs(facadeComponent) {
		if err := o.facadeAuth.validate(o.facadeAddr, o.facadeServer.tlsCertFile != ""); err != nil {
			return err
		}
		if err := o.peers.validate(&o.facadeServer, o.leaderElectionNamespace); err != nil {
			return err
		}
	}
	if o.runs(controllerComponent) {
		if err := o.peers.validateGuest(); err != nil {
			return err
		}
	}
	if err := o.facadeServer.validate(); err != nil {
		return err
	}
	if err := o.webhook.validate(); err != nil {
		return err
	}
	return o.certificates.validate()
}

func (o *options) validateLimits() error {
	switch {
	case o.limits.MaxTTL <= 0 || o.limits.MaxTTL > v1alpha1.MaxTTL:
		return fmt.Errorf("--max-ttl: must be more than 0s and at most %s", v1alpha1.MaxTTL)
	case o.limits.DefaultTTL <= 0 || o.limits.DefaultTTL > o.limits.MaxTTL:
		return fmt.Errorf("--default-ttl: must be more than 0s and at most --max-ttl, %s", o.limits.MaxTTL)
	case o.limits.MaxExpireAhead < 0 || o.limits.MaxExpireAhead > rules.MaxExpireAhead:
		return fmt.Errorf("--max-expire-ahead: must be at least 0s and at most %s", rules.MaxExpireAhead)
	case o.maxOperatorRenewal < 0:
		return errors.New("--max-operator-renewal: must not be negative")
	case o.maxLocks < 0:
		return errors.New("--max-locks-per-namespace: must not be negative")
	case o.maxJobs < 0:
		return errors.New("--max-jobs-per-namespace: must not be negative")
	case o.clockSkewAllowance < 0:
		return errors.New("--clock-skew-allowance: must not be negative")
	case o.facadeMaxBlock <= 0 || o.facadeMaxBlock > maxFacadeBlock:
		return fmt.Errorf("--facade-max-block: must be more than 0s and at most %s", maxFacadeBlock)
	}
	return nil
}

func (o *options) runs(component string) bool {
	return slices.Contains(strings.Split(o.components, ","), component)
}

// stopTimeout is how long the process may take to stop.
func (o *options) stopTimeout() time.Duration {
	longest := o.facadeServer.stopTimeout()
	if o.runs(webhookComponent) {
		longest = max(longest, o.webhook.stopTimeout())
	}
	return longest
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkHostPort returns an error unless the address has a port to listen on.
func checkHostPort(address string) error {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port: %w", address, err)
	}
	if port, err := strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
		return fmt.Errorf("%q has no port between 1 and 65535", address)
	}
	return nil
}
