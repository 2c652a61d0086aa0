// Package issuer issues the certificates of the installation, and tells API servers and clients which
// authorities to trust, by the rules of package certificates.
package issuer

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/certificates"
	"forrst.dev/lock-operator/controllers/leadership"
)

const (
	// maxInterval and minInterval bound how often the objects are read: often enough for the overlap, and to
	// repair soon what another party has changed; but not as often as a party that changes it back each time.
	maxInterval = 30 * time.Second
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
	switch {
	case err == nil:
		return ctrl.Result{RequeueAfter: r.interval()}, nil
	case onlyConflicts(err):
		return ctrl.Result{RequeueAfter: minInterval}, nil
	}
	return ctrl.Result{}, err
}

func (r *Reconciler) interval() time.Duration {
	const perOverlap = 5
	return max(minInterval, min(maxInterval, r.options.Policy.Overlap/perOverlap))
}

// pass reads everything and brings it in order. What fails keeps nothing else from being done that does not
// depend on it.
func (r *Reconciler) pass(ctx context.Context) error {
	objects, err := r.read(ctx)
	if err != nil {
		return err
	}
	now := r.options.Clock.Now() // The reads have brought the API server's time.
	state := objects.state(&r.options)
	// First, so that no certificate is ever of an authority whose key is lost.
	if err := r.keepAuthority(ctx, objects, state, now); err != nil {
		return err
	}
	r.authority.Store(state.Authority.Certificate)
	trusted := r.options.Policy.Bundle(state, now)
	injectErr := r.inject(ctx, objects, state, trusted)
	publishErr := r.publish(ctx, objects, state, trusted, now)
	leafErr := r.issue(ctx, objects, state, now)
	return errors.Join(injectErr, publishErr, leafErr)
}

// onlyConflicts reports whether nothing has failed but conditional writes of what has changed.
func onlyConflicts(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return apierrors.IsConflict(err)
	}
	return !slices.ContainsFunc(joined.Unwrap(), func(each error) bool { return !onlyConflicts(each) })
}
