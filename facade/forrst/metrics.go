package forrst

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// Classes that metrics count functions by: callers choose the names of functions, but not
// how many series there are.
const (
	lockClass    = "lock"
	vendorClass  = "vendor"
	systemClass  = "system"
	routedClass  = "routed"
	unknownClass = "unknown"
)

// Outcomes that are not the code of an error.
const (
	okOutcome = "OK"
	// otherOutcome stands for the codes that routed functions make up.
	otherOutcome = "OTHER"
)

// durationBuckets reach from a ping to the longest wait by default and beyond.
var durationBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}

// metrics are about the calls of one handler.
type metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newMetrics registers the metrics unless registerer is nil.
func newMetrics(registerer prometheus.Registerer, limiter *callLimiter) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lock_operator_facade_calls_total",
			Help: "Answered calls by class of function and code of the first error, or OK.",
		}, []string{"function", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lock_operator_facade_call_duration_seconds",
			Help:    "Time from the receipt of a call to its answer, waiting for locks included, by class of function.",
			Buckets: durationBuckets,
		}, []string{"function"}),
	}
	if registerer == nil {
		return m, nil
	}
	running := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lock_operator_facade_running_calls",
		Help: "Calls that run now.",
	}, func() float64 { return float64(limiter.occupancy().running) })
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lock_operator_facade_waiting_calls",
		Help: "Calls that wait for a lock now.",
	}, func() float64 { return float64(limiter.occupancy().waiting) })
	for _, collector := range []prometheus.Collector{m.calls, m.duration, running, waiting} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("facade: register metrics: %w", err)
		}
	}
	return m, nil
}

// observe counts one answer. function is nil if none was found.
func (m *metrics) observe(function *function, response *envelope.Response, took time.Duration) {
	class := classOf(function)
	m.calls.WithLabelValues(class, outcomeOf(response)).Inc()
	m.duration.WithLabelValues(class).Observe(took.Seconds())
}

func classOf(function *function) string {
	switch {
	case function == nil:
		return unknownClass
	case function.class == "":
		return routedClass
	}
	return function.class
}

// outcomeOf returns one of a bounded number of texts.
func outcomeOf(response *envelope.Response) string {
	if len(response.Errors) == 0 {
		return okOutcome
	}
	switch code := response.Errors[0].Code; code {
	case envelope.ParseError, envelope.InvalidRequest, envelope.InvalidProtocolVersion, envelope.InvalidArguments,
		envelope.ExtensionNotSupported, envelope.ExtensionNotApplicable:
		return string(code)
	default:
		// Every other standard code has a status of its own.
		if code.Status() != envelope.InvalidRequest.Status() {
			return string(code)
		}
	}
	return otherOutcome
}
