package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/webhook"
	"forrst.dev/lock-operator/webhook/server"
)

// webhookOptions are the flags of the webhook's server.
type webhookOptions struct {
	address, certDir      string
	clientCA, clientNames string
	maxConnections        int
	maxMemory             int64
	maxRequests           int
	shutdownDelay         time.Duration
	drainTimeout          time.Duration
}

func (o *webhookOptions) bindFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.address, "webhook-bind-address", ":9443", "The address of the admission webhook.")
	flags.StringVar(&o.certDir, "webhook-cert-dir", "", "The folder with tls.crt and tls.key of the admission webhook.")
	flags.StringVar(&o.clientCA, "webhook-client-ca", "", "A file with the authority, in PEM, of the client certificate that the API server presents to the admission webhook, read again when it changes. With it, no other client is served.")
	flags.StringVar(&o.clientNames, "webhook-client-names", "", "Names, separated by commas, of which that certificate must have one. Empty for any certificate of the authority.")
	flags.IntVar(&o.maxConnections, "webhook-max-connections", server.DefaultMaxConnections, "How many connections to the admission webhook are open at a time on one replica; half of them from one network.")
	flags.Int64Var(&o.maxMemory, "webhook-max-memory-bytes", server.DefaultMaxMemory, "How many bytes of memory admission reviews that are judged may take at a time on one replica, whatever their content; without --webhook-client-ca half of them from one network.")
	flags.IntVar(&o.maxRequests, "webhook-max-requests", server.DefaultMaxRequests, "How many requests to the API server admission reviews cost each second on one replica without --webhook-client-ca; half of them from one network, and of these a quarter for one namespace.")
	flags.DurationVar(&o.shutdownDelay, "webhook-shutdown-delay", defaultShutdownDelay, "How long the admission webhook still serves when it is to stop, but says that it is not ready.")
	flags.DurationVar(&o.drainTimeout, "webhook-drain-timeout", server.DefaultDrainTimeout, "How long it goes on after that, until the API servers have closed their connections: they keep one for 90s that they do not use. 0s to close them.")
}

func (o *webhookOptions) validate() error {
	if err := checkHostPort(o.address); err != nil {
		return fmt.Errorf("--webhook-bind-address: %w", err)
	}
	switch {
	case o.clientNames != "" && o.clientCA == "":
		return errors.New("--webhook-client-names: needs --webhook-client-ca")
	case slices.Contains(o.names(), ""):
		return fmt.Errorf("--webhook-client-names: %q has an empty one", o.clientNames)
	case o.shutdownDelay < 0:
		return errors.New("--webhook-shutdown-delay: must not be negative")
	case o.drainTimeout < 0:
		return errors.New("--webhook-drain-timeout: must not be negative")
	case o.maxConnections < server.MinLimit:
		return fmt.Errorf("--webhook-max-connections: must be at least %d", server.MinLimit)
	case o.maxRequests < server.MinLimit:
		return fmt.Errorf("--webhook-max-requests: must be at least %d", server.MinLimit)
	}
	if needed := server.MemoryFor(webhook.ReviewCosts()); o.maxMemory < needed {
		return fmt.Errorf("--webhook-max-memory-bytes: must be at least %d, for the largest review", needed)
	}
	return nil
}

// stopTimeout is how long a replica may take to stop.
func (o *webhookOptions) stopTimeout() time.Duration {
	return o.shutdownDelay + o.drainTimeout + server.StopTimeout
}

func (o *webhookOptions) names() []string {
	if o.clientNames == "" {
		return nil
	}
	return strings.Split(o.clientNames, ",")
}

// untilDrained returns a context that ends when ctx has ended and the webhook has no clients any more. It judges
// reviews by what caches and watches know, and a manager stops these before it.
func (o *options) untilDrained(ctx context.Context, manager ctrl.Manager) context.Context {
	if !o.runs(webhookComponent) {
		return ctx
	}
	port, ok := manager.GetWebhookServer().(*server.Server)
	if !ok {
		return ctx
	}
	return endAfter(ctx, port.Drain)
}

// endAfter returns a context that ends when ctx has ended and drain has returned.
func endAfter(ctx context.Context, drain func()) context.Context {
	drained, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		defer end()
		drain()
	})
	return drained
}

// newServer returns the server, which reads no file before it starts.
func (o *webhookOptions) newServer() (*server.Server, error) {
	log := ctrl.Log.WithName("webhook")
	if o.clientCA == "" {
		log.Info("Webhook does not verify its clients: any program that reaches its port can send it reviews, and refusals do not name holders; see --webhook-client-ca")
	}
	return server.New(server.Options{
		Address:        o.address,
		CertDir:        o.certDir,
		ClientCA:       o.clientCA,
		ClientNames:    o.names(),
		Reviews:        webhook.ReviewCosts(),
		MaxConnections: o.maxConnections,
		MaxMemory:      o.maxMemory,
		MaxRequests:    o.maxRequests,
		ShutdownDelay:  o.shutdownDelay,
		DrainTimeout:   o.drainTimeout,
		Metrics:        metrics.Registry,
		Logger:         log,
	})
}
