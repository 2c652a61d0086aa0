// Package exposition has what tests of metrics compare with.
package exposition

import (
	"fmt"
	"maps"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"forrst.dev/lock-operator/lock/metric"
)

// Of returns the text of a metric as it is scraped, with samples, each of which ends with a newline.
func Of(of *metric.Definition, samples string) string {
	return fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n%s", of.Name, of.Help, of.Name, of.Type, samples)
}

// Value returns the value of the one series with the labels, or of a histogram how much it has observed. It
// returns false if there is no such series.
func Value(from prometheus.Gatherer, of *metric.Definition, labels map[string]string) (float64, bool) {
	for series := range series(from, of) {
		if maps.Equal(labelsOf(series), labels) {
			return valueOf(series), true
		}
	}
	return 0, false
}

// Sum returns the sum of all series that have the labels, among others.
func Sum(from prometheus.Gatherer, of *metric.Definition, labels map[string]string) (sum float64) {
	for series := range series(from, of) {
		found := labelsOf(series)
		hasAll := true
		for name, value := range labels {
			hasAll = hasAll && found[name] == value
		}
		if hasAll {
			sum += valueOf(series)
		}
	}
	return sum
}

func series(from prometheus.Gatherer, of *metric.Definition) func(func(*dto.Metric) bool) {
	return func(yield func(*dto.Metric) bool) {
		families, err := from.Gather()
		if err != nil {
			panic(err)
		}
		for _, family := range families {
			if family.GetName() != of.Name {
				continue
			}
			for _, series := range family.GetMetric() {
				if !yield(series) {
					return
				}
			}
		}
	}
}

func labelsOf(series *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range series.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}

func valueOf(series *dto.Metric) float64 {
	switch {
	case series.Counter != nil:
		return series.GetCounter().GetValue()
	case series.Gauge != nil:
		return series.GetGauge().GetValue()
	}
	return float64(series.GetHistogram().GetSampleCount())
}
