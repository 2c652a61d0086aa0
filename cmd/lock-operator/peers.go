package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/certificates/certfile"
	"forrst.dev/lock-operator/facade/peers"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/line"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/servertime"
	"forrst.dev/lock-operator/tracing"
)

// peersOptions are the flags for the lines that replicas of the façade share.
type peersOptions struct {
	address, service, serverName, file, replica, tokenFile, authorityFile string
	// user is the own user name, which the other replicas have, too. Empty until learnIdentity.
	user string
}

func (o *peersOptions) bindFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.address, "peers-bind-address", "0", "Where the façade serves its other replicas, with the façade's certificate: those that wait for a lock at any of them stand in one line. 0 for a line at each replica.")
	flags.StringVar(&o.service, "peers-service", "lock-operator-facade-peers", "The headless Service of the replicas of the façade, in the operator's namespace. Its EndpointSlices tell which of them are ready, and the address of their port named peers.")
	flags.StringVar(&o.serverName, "peers-server-name", "", "The name in the certificates of the replicas. Empty for that of the Service, as in lock-operator-facade-peers.forrst-system.svc.")
	flags.StringVar(&o.file, "peers-file", "", "A YAML file of the names of the replicas and their addresses for each other, in place of the EndpointSlices. It is read again when it changes.")
	flags.StringVar(&o.replica, "peers-replica", "", "The name of this replica: that of its Pod.")
	flags.StringVar(&o.tokenFile, "peers-token-file", "", "A token of this process, for the audience "+peers.Audience+". With it, the controllers let Jobs stand in the lines of the façade.")
	flags.StringVar(&o.authorityFile, "peers-authority-file", "", "The authorities of the façade's certificates, in PEM.")
}

func (o *peersOptions) isOn() bool { return o.address != "0" && o.address != "" }

// isGuest reports whether Jobs are to stand in the lines of the façade.
func (o *peersOptions) isGuest() bool { return o.tokenFile != "" }

// validateGuest is for a process with the controllers.
func (o *peersOptions) validateGuest() error {
	if o.isGuest() && (o.authorityFile == "" || o.service == "" && o.file == "") {
		return errors.New("--peers-token-file: with the controllers, --peers-authority-file and --peers-service or --peers-file must be set, too")
	}
	return nil
}

func (o *peersOptions) validate(server *facadeServerOptions, namespace string) error {
	if !o.isOn() {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.address); err != nil {
		return fmt.Errorf("--peers-bind-address: %w", err)
	}
	for name, value := range map[string]string{
		"peers-service": o.service, "peers-replica": o.replica, "peers-token-file": o.tokenFile,
		"peers-authority-file": o.authorityFile, "facade-tls-cert-file": server.tlsCertFile,
		"leader-election-namespace": namespace,
	} {
		if value == "" {
			return fmt.Errorf("--%s: must be set with --peers-bind-address", name)
		}
	}
	return nil
}

// sharedLine is what runs beside the façade for the lines that it shares with other replicas.
type sharedLine struct {
	*line.Line
	service *peers.Service
	watch   *peers.Watch
}

// newBackend returns where the façade takes its locks: the engine, or the line that it shares.
func newBackend(manager ctrl.Manager, settings options, own *engine.Engine, now clock.WithTicker) (lock.Backend, *sharedLine, error) {
	if !settings.peers.isOn() {
		return own, nil, countPeers(func() (ready, connected int) { return 0, 0 })
	}
	shared, watch, err := settings.peers.join(manager, own, settings.peers.replica, settings.leaderElectionNamespace, now)
	if err != nil {
		return nil, nil, err
	}
	s := &sharedLine{Line: shared, watch: watch}
	if err := errors.Join(countPeers(shared.Peers), countKnown(s.watch)); err != nil {
		return nil, nil, err
	}
	s.service, err = newPeersService(manager, settings, shared, s.watch)
	return shared, s, err
}

// join returns the line of an engine, and the watch that connects it to the replicas of the façade. A name that is of none
// of them makes it a guest.
func (o *peersOptions) join(manager ctrl.Manager, own *engine.Engine, name, namespace string, now clock.WithTicker) (*line.Line, *peers.Watch, error) {
	logger := manager.GetLogger().WithName("peers")
	traces := line.Traces{Of: tracing.Traceparent, With: tracing.ContextWithTraceparent}
	joined, err := line.New(line.Options{Local: own, Self: name, Clock: now, Logger: logger, Traces: traces})
	if err != nil {
		return nil, nil, err
	}
	source := peers.FromFile(o.file, servertime.Timers(now), logger)
	if o.file == "" {
		client, err := kubernetes.NewForConfigAndClient(manager.GetConfig(), manager.GetHTTPClient())
		if err != nil {
			return nil, nil, err
		}
		source = peers.FromSlices(client, namespace, o.service)
	}
	watch, err := peers.NewWatch(peers.WatchOptions{
		Source: source, Line: joined, Logger: logger,
		TokenFile: o.tokenFile, AuthorityFile: o.authorityFile,
		ServerName: cmp.Or(o.serverName, o.service+"."+namespace+".svc"),
	})
	return joined, watch, err
}

// countPeers registers the metric of the other replicas.
func countPeers(count func() (ready, connected int)) error {
	return metric.Register(metrics.Registry,
		metric.FacadePeers.GaugeFunc(prometheus.Labels{"state": "ready"}, func() float64 {
			ready, _ := count()
			return float64(ready)
		}),
		metric.FacadePeers.GaugeFunc(prometheus.Labels{"state": "connected"}, func() float64 {
			_, connected := count()
			return float64(connected)
		}))
}

// countKnown registers the metric of what this replica has learned: an alert fires if that is nothing, not even itself.
func countKnown(watch *peers.Watch) error {
	return metric.Register(metrics.Registry, metric.FacadePeers.GaugeFunc(prometheus.Labels{"state": "known"}, func() float64 {
		return float64(watch.Known())
	}))
}

func newPeersService(manager ctrl.Manager, settings options, shared *line.Line, watch *peers.Watch) (*peers.Service, error) {
	access, err := auth.New(manager.GetConfig(), manager.GetHTTPClient(), auth.Options{Audiences: []string{peers.Audience}})
	if err != nil {
		return nil, err
	}
	files := certfile.New(certfile.Options{
		Certificate: settings.facadeServer.tlsCertFile, Key: settings.facadeServer.tlsKeyFile, Logger: manager.GetLogger(),
	})
	if err := manager.Add(files); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", settings.peers.address)
	if err != nil {
		return nil, err
	}
	options := peers.Options{
		Line: shared, Listener: listener, Certificate: files.GetCertificate, Access: access, User: settings.peers.user, HasMember: watch.HasMember,
		Logger: manager.GetLogger().WithName("peers"),
	}
	if settings.controllersUser != settings.peers.user {
		options.Guest = settings.controllersUser
	}
	if settings.peers.file == "" {
		options.IsMember = watch.IsMember
	}
	return peers.NewService(options)
}

// Start runs until ctx ends, or a part fails: a replica that asks the others and does not serve them would have
// other homes than they.
func (s *sharedLine) Start(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	for _, start := range []func(context.Context) error{s.Line.Start, s.service.Start, s.watch.Start} {
		running.Go(func() error { return start(ctx) })
	}
	return running.Wait()
}
