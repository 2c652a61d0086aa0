package enginemetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/observe"
)

// Metrics are those of all engines of a process. Safe for concurrent use.
type Metrics struct {
	registerer prometheus.Registerer
	duration   *prometheus.HistogramVec
	unanswered *prometheus.CounterVec
	acquires   *prometheus.CounterVec
}

// New registers the metrics.
func New(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		registerer: registerer,
		duration:   metric.AcquireDuration.HistogramVec(nil),
		unanswered: metric.UnansweredWrites.CounterVec(),
		acquires:   metric.Acquires.CounterVec(),
	}
	return m, metric.Register(registerer, m.duration, m.unanswered, m.acquires)
}

// Observer returns the observer of an engine whose records name the path.
func (m *Metrics) Observer(via audit.Via) observe.Observer {
	o := &engineObserver{
		free:       m.duration.WithLabelValues(string(via), "false"),
		waited:     m.duration.WithLabelValues(string(via), "true"),
		unanswered: m.unanswered.MustCurryWith(prometheus.Labels{"via": string(via)}),
	}
	// A series that begins with the first writes hides them: Prometheus counts only what is added to it.
	for _, operation := range observe.AllOperations {
		for _, outcome := range observe.AllOutcomes {
			o.unanswered.WithLabelValues(string(operation), string(outcome))
		}
	}
	return o
}

// CountDoor returns a function that counts the requests for locks of one door.
func (m *Metrics) CountDoor(door string) func(observe.Acquired) {
	counters := make(map[observe.Acquired]prometheus.Counter, len(observe.AllAcquired))
	for _, end := range observe.AllAcquired {
		counters[end] = m.acquires.WithLabelValues(door, string(end))
	}
	return func(end observe.Acquired) { counters[end].Inc() }
}

// Watch registers what an engine knows of its waits, for each scrape.
func (m *Metrics) Watch(via audit.Via, waits func() observe.Waits) error {
	labels := prometheus.Labels{"via": string(via)}
	collector := &waitsCollector{
		waits:   waits,
		waiters: metric.Waiters.Desc(labels), longest: metric.LongestWait.Desc(labels),
		free: metric.FreeLockWaitedFor.Desc(labels), lookedFor: metric.UnansweredGrants.Desc(labels),
	}
	if via == audit.Facade { // No other engine bounds its lines.
		collector.lines = lineLimits
	}
	return metric.Register(m.registerer, collector)
}

// lineLimit is a limit of waiting callers.
type lineLimit struct {
	usage *prometheus.Desc
	of    func(observe.LineUsage) float64
}

var lineLimits = []lineLimit{
	{limitNamed("line_per_lock"), func(of observe.LineUsage) float64 { return of.PerLock }},
	{limitNamed("line_per_namespace"), func(of observe.LineUsage) float64 { return of.PerNamespace }},
	{limitNamed("line_per_caller"), func(of observe.LineUsage) float64 { return of.PerHolder }},
}

func limitNamed(name string) *prometheus.Desc {
	return metric.LimitUsage.Desc(prometheus.Labels{"limit": name})
}

type engineObserver struct {
	free, waited prometheus.Observer
	unanswered   *prometheus.CounterVec
}

// Granted implements [observe.Observer].
func (o *engineObserver) Granted(took time.Duration, hasWaited bool) {
	if hasWaited {
		o.waited.Observe(took.Seconds())
		return
	}
	o.free.Observe(took.Seconds())
}

// Unanswered implements [observe.Observer].
func (o *engineObserver) Unanswered(operation observe.Operation, outcome observe.Outcome) {
	o.unanswered.WithLabelValues(string(operation), string(outcome)).Inc()
}

// waitsCollector makes the metrics anew for each scrape, so a namespace without waiters has no series.
type waitsCollector struct {
	waits                             func() observe.Waits
	waiters, longest, free, lookedFor *prometheus.Desc
	lines                             []lineLimit
}

// Describe implements [prometheus.Collector].
func (c *waitsCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{c.waiters, c.longest, c.free, c.lookedFor} {
		descriptions <- description
	}
	for _, limit := range c.lines {
		descriptions <- limit.usage
	}
}

// Collect implements [prometheus.Collector].
func (c *waitsCollector) Collect(metrics chan<- prometheus.Metric) {
	waits := c.waits()
	for namespace, of := range waits.Namespaces {
		metrics <- prometheus.MustNewConstMetric(c.waiters, prometheus.GaugeValue, float64(of.Callers), namespace)
		metrics <- prometheus.MustNewConstMetric(c.longest, prometheus.GaugeValue, of.Longest.Seconds(), namespace)
	}
	metrics <- prometheus.MustNewConstMetric(c.free, prometheus.GaugeValue, waits.FreeFor.Seconds())
	metrics <- prometheus.MustNewConstMetric(c.lookedFor, prometheus.GaugeValue, float64(waits.LookedFor))
	for _, limit := range c.lines {
		metrics <- prometheus.MustNewConstMetric(limit.usage, prometheus.GaugeValue, limit.of(waits.Lines))
	}
}
