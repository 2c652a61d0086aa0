package main

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/observe/enginemetrics"
	"forrst.dev/lock-operator/lock/observe/requestmetrics"
	"forrst.dev/lock-operator/lock/servertime"
)

// observeProcess registers what every process reports: its build, its clock, and the requests of the clients
// that will be made from the configuration. It returns the metrics of engines.
func observeProcess(config *rest.Config, now *servertime.Clock) (*enginemetrics.Metrics, error) {
	requests, err := requestmetrics.New(metrics.Registry, now.Local())
	if err != nil {
		return nil, err
	}
	config.Wrap(requests.RoundTripper)
	build := prometheus.Labels{"version": version(), "revision": revision(), "go_version": runtime.Version()}
	err = metric.Register(metrics.Registry,
		metric.BuildInfo.GaugeFunc(build, func() float64 { return 1 }),
		metric.ClockDifference.GaugeFunc(nil, func() float64 { return now.Since(now.Local().Now().Round(0)).Seconds() }),
		metric.ClockUncertainty.GaugeFunc(nil, func() float64 { return now.MaxAhead().Seconds() }),
		metric.ClockFresh.GaugeFunc(nil, func() float64 { return oneIf(now.HasHeard(servertime.FreshFor)) }))
	if err != nil {
		return nil, err
	}
	return enginemetrics.New(metrics.Registry)
}

// leading tells whether the controllers of this process act.
func leading(election *leadership.Election) prometheus.Collector {
	return metric.IsLeader.GaugeFunc(nil, func() float64 { return oneIf(election.IsLeader()) })
}

func oneIf(isSo bool) float64 {
	if isSo {
		return 1
	}
	return 0
}

// revision is that of the source, which go build knows in a repository; else it is empty.
func revision() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return ""
}
