package main

import (
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/servertime"
)

// maxClosedWatch is for how long a replica may be without a watch until it is not ready.
const maxClosedWatch = 10 * time.Second

// The environment of client-go sets how it finds connections that are broken without being closed.
// Its defaults, 30 and 15 seconds, would let requests fail for as long.
var connectionChecks = map[string]string{
	"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "1",
	"HTTP2_PING_TIMEOUT_SECONDS":      "2",
}

// checkConnectionsOften must be called before the first client is made.
func checkConnectionsOften() error {
	for name, seconds := range connectionChecks {
		if _, isSet := os.LookupEnv(name); isSet {
			continue
		}
		if err := os.Setenv(name, seconds); err != nil {
			return err
		}
	}
	return nil
}

// newRESTMapper returns a mapper that knows locks without asking the API server, which may be away
// when the façade starts.
func newRESTMapper(config *rest.Config, client *http.Client) (apimeta.RESTMapper, error) {
	discovered, err := apiutil.NewDynamicRESTMapper(config, client)
	if err != nil {
		return nil, err
	}
	known := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion})
	known.Add(v1alpha1.GroupVersion.WithKind("Lock"), apimeta.RESTScopeNamespace)
	return apimeta.FirstHitRESTMapper{MultiRESTMapper: apimeta.MultiRESTMapper{known, discovered}}, nil
}

// watchCheck fails until the API server has answered this replica, and while it cannot watch locks though the
// API server answers it. It does not wait until all locks are listed: what decides about a lock is etcd. If
// the API server is away later, no other replica would do better.
func watchCheck(locks *engine.Engine, now *servertime.Clock) healthz.Checker {
	return func(*http.Request) error {
		state := locks.WatchState()
		switch {
		case state.IsUnanswered:
			return errors.New("the API server has not answered yet")
		case state.ClosedFor >= maxClosedWatch && now.HasHeard(servertime.FreshFor):
			return errors.New("locks cannot be watched")
		}
		return nil
	}
}

// registerWatchMetrics registers what an engine knows of its watch.
func registerWatchMetrics(locks *engine.Engine, name string) error {
	labels := prometheus.Labels{"engine": name}
	return metric.Register(metrics.Registry,
		metric.WatchClosed.GaugeFunc(labels, func() float64 { return locks.WatchState().ClosedFor.Seconds() }))
}
