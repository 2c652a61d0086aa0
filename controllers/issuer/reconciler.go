// Package issuer issues the certificates of the installation, and tells API servers and clients which
// authority to trust, by the rules of package certificates.
package issuer

import (
	"context"
	"crypto/x509"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/certificates"
	"forrst.dev/lock-operator/controllers/leadership"
)

const (
	// interval is how often the objects are read, to repair soon what another party has changed, and minInterval
	// bounds that: a party may change a webhook configuration back each time.
	interval    = 30 * time.Second
	minInterval = time.Second
	// timeout bounds one pass.
	timeout = 30 * time.Second
)

// Options configures a [Reconciler]. All fields are required.
type Options struct {
	// Client writes, and reads webhook configurations from the cache.
	Client client.Client
	// LiveReader reads Secrets and the ConfigMap from the API server: a cache would need the right to list them.
	LiveReader client.Reader
	// Namespace is that of the operator, with its Secrets and Services.
	Namespace string
	// Authority is the name of the Secret with the authority, and of the ConfigMap that publishes it.
	Authority string
	// Leafs are the certificates to issue.
	Leafs []Leaf
	// Policy must be valid.
	Policy certificates.Policy
	// Clock tells the API server's time, by which API servers judge certificates.
	Clock clock.PassiveClock
	// Leadership says whether this replica issues.
	Leadership leadership.Leadership
}

// Leaf is a certificate to issue.
type Leaf struct {
	// Name is that of the Secret for it, and of the Service whose names it has.
	Name string
	// DNSNames are further names.
	DNSNames []string
}

// names are the DNS names of a Service, as pods may write it, and further ones.
func (l *Leaf) names(namespace string) []string {
	service := l.Name + "." + namespace
	return append([]string{service + ".svc", service + ".svc.cluster.local", service}, l.DNSNames...)
}

// Reconciler keeps the Secrets, the ConfigMap and the webhook configurations. It creates none of them. Every
// write is conditional on what was read. Two replicas that lead at a time do no harm: each authority is
// stored before it is used, and the slower one fails with a conflict.
type Reconciler struct {
	options Options
	// passed is when the last pass has ended.
	passed time.Time
	// authority is the one that signs, for the metrics.
	authority atomic.Pointer[x509.Certificate]
}

// New returns a reconciler that has yet to be set up.
func New(options Options) *Reconciler { return &Reconciler{options: options} }

// Metrics tell when the authority begins and ends, on the replica that leads.
func (r *Reconciler) Metrics() prometheus.Collector {
	return certificates.NewValidityMetrics("authority", func() *x509.Certificate {
		if !r.options.Leadership.IsLeader() {
			return nil
		}
		return r.authority.Load()
	})
}

// Reconcile does what is due. A replica that does not lead does nothing; on becoming the leader it is called again.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if !r.options.Leadership.IsLeader() {
		return ctrl.Result{}, nil
	}
	if rest := minInterval - r.options.Clock.Since(r.passed); rest > 0 && rest <= minInterval {
		return ctrl.Result{RequeueAfter: rest}, nil
	}
	err := r.pass(ctx)
	r.passed = r.options.Clock.Now()
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: interval}, nil
}

// pass brings everything in order. What fails keeps nothing else from being done, but for the authority.
func (r *Reconciler) pass(ctx context.Context) error {
	authority, err := r.keepAuthority(ctx)
	if err != nil {
		return err
	}
	r.authority.Store(authority.Certificate)
	// First what trusts, and then what is to be trusted.
	failed := errors.Join(r.inject(ctx, authority.CertificatePEM), r.publish(ctx, authority.CertificatePEM))
	for index := range r.options.Leafs {
		failed = errors.Join(failed, r.keepLeaf(ctx, &r.options.Leafs[index], authority))
	}
	return failed
}
