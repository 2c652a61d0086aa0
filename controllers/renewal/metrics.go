package renewal

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/metric"
)

var (
	attempts  = metric.OperatorRenewals.Desc(nil)
	leastLeft = metric.OperatorRenewalLeastLeft.Desc(nil)
)

// outcomes counts attempts to renew a lock.
type outcomes struct {
	renewed, changed, failed atomic.Int64
}

// Describe implements [prometheus.Collector].
func (r *Reconciler) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- attempts
	descriptions <- leastLeft
}

// Collect implements [prometheus.Collector].
func (r *Reconciler) Collect(metrics chan<- prometheus.Metric) {
	for outcome, count := range map[string]*atomic.Int64{"renewed": &r.outcomes.renewed, "changed": &r.outcomes.changed, "failed": &r.outcomes.failed} {
		metrics <- prometheus.MustNewConstMetric(attempts, prometheus.CounterValue, float64(count.Load()), outcome)
	}
	if r.Leadership.IsLeader() {
		metrics <- prometheus.MustNewConstMetric(leastLeft, prometheus.GaugeValue, r.pending.leastLeft(r.Clock.Now()))
	}
}

// pending remembers the locks that are to be renewed. Its zero value is ready for use. Safe for concurrent use.
type pending struct {
	mu    sync.Mutex
	locks map[types.NamespacedName]period
}

// period is what a lock has until it expires.
type period struct {
	end time.Time
	ttl time.Duration
}

// keep is for a lock that is to be renewed, now or later.
func (p *pending) keep(lock *v1alpha1.Lock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.locks == nil {
		p.locks = map[types.NamespacedName]period{}
	}
	p.locks[client.ObjectKeyFromObject(lock)] = period{end: lock.Spec.ExpireTime.Time, ttl: lock.Spec.TTL.Duration}
}

// forget is for a lock that is gone, or that is not to be renewed by this replica.
func (p *pending) forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.locks, name)
}

// leastLeft returns the least part of its ttl that any of the locks has left; 1 if there is none.
func (p *pending) leastLeft(now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	least := 1.0
	for _, of := range p.locks {
		least = min(least, of.end.Sub(now).Seconds()/of.ttl.Seconds())
	}
	return max(least, 0)
}
