package metric

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is the type of a metric.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

const (
	// nativeGrowth is how much larger each bucket of a native histogram is than the one before.
	nativeGrowth = 1.1
	// maxNativeBuckets bounds what a native histogram keeps. Beyond it, it gets coarser.
	maxNativeBuckets = 160
	// nativeReset is how long a native histogram that became coarse stays so at least.
	nativeReset = time.Hour
)

// Definition declares one metric.
type Definition struct {
	// Name is unique.
	Name string
	Type Type
	// Labels are its labels, in the order of the values.
	Labels []string
	// Values are the values of a label if they are known.
	Values map[string]string
	// By says which processes report it.
	By Reporter
	// Help is its meaning, in sentences.
	Help string
	// Buckets are the upper bounds of the classic buckets of a histogram, which is a native one as well.
	Buckets []float64
}

// Reporter says which processes report a metric.
type Reporter string

// The reporters.
const (
	Everywhere Reporter = "every process"
	Facade     Reporter = "façade"
	Webhook    Reporter = "webhook"
	// Controllers are all replicas with the controllers, Leader is that which leads.
	Controllers Reporter = "controllers"
	Leader      Reporter = "the leader"
	// Engines are the processes that take locks: façade and controllers.
	Engines Reporter = "façade, controllers"
	// Recorders are those that record renewals.
	Recorders Reporter = "façade, controllers, webhook"
	// Bounded are those that have limits.
	Bounded Reporter = "façade, webhook"
)

// Desc returns the description for metrics that are made for each scrape.
func (d *Definition) Desc(constant prometheus.Labels) *prometheus.Desc {
	return prometheus.NewDesc(d.Name, d.Help, d.variable(constant), constant)
}

// variable returns the labels without a constant value.
func (d *Definition) variable(constant prometheus.Labels) []string {
	var variable []string
	for _, label := range d.Labels {
		if _, isConstant := constant[label]; !isConstant {
			variable = append(variable, label)
		}
	}
	return variable
}

// CounterVec returns counters for values of all labels.
func (d *Definition) CounterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

// Counter returns the counter of a metric without labels.
func (d *Definition) Counter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: d.Name, Help: d.Help})
}

// Gauge returns the gauge of a metric without labels.
func (d *Definition) Gauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: d.Name, Help: d.Help})
}

// GaugeFunc returns a gauge that is read for each scrape. The labels, which must be all, are constant.
func (d *Definition) GaugeFunc(labels prometheus.Labels, read func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: d.Name, Help: d.Help, ConstLabels: labels}, read)
}

// CounterFunc returns a counter that is read for each scrape. The labels, which must be all, are constant.
func (d *Definition) CounterFunc(labels prometheus.Labels, read func() float64) prometheus.CounterFunc {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: d.Name, Help: d.Help, ConstLabels: labels}, read)
}

// HistogramVec returns histograms for values of all labels that are not constant. They have native buckets
// besides the classic ones.
func (d *Definition) HistogramVec(constant prometheus.Labels) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: d.Name, Help: d.Help, ConstLabels: constant, Buckets: d.Buckets,
		NativeHistogramBucketFactor: nativeGrowth, NativeHistogramMaxBucketNumber: maxNativeBuckets,
		NativeHistogramMinResetDuration: nativeReset,
	}, d.variable(constant))
}

// Register registers the collectors, or returns the first error.
func Register(registerer prometheus.Registerer, collectors ...prometheus.Collector) error {
	for _, collector := range collectors {
		if err := registerer.Register(collector); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}
