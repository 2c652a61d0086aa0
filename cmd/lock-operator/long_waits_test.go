package main

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/servertime"
)

// recordingManager keeps what is added to it.
type recordingManager struct {
	ctrl.Manager
	added []manager.Runnable
}

func (r *recordingManager) Add(runnable manager.Runnable) error {
	r.added = append(r.added, runnable)
	return r.Manager.Add(runnable)
}

// TestEachEngineReportsLongWaits looks for what makes the Events of long waits among what the program runs.
func TestEachEngineReportsLongWaits(t *testing.T) {
	for _, via := range []audit.Via{audit.Facade, audit.Controller} {
		t.Run(string(via), func(t *testing.T) {
			ctrl.SetLogger(logr.Discard())
			former := metrics.Registry
			metrics.Registry = prometheus.NewRegistry()
			t.Cleanup(func() { metrics.Registry = former })
			settings, err := parse("--operator-user=operator")
			if err != nil {
				t.Fatal(err)
			}
			now, config, recorder := servertime.New(clock.RealClock{}), &rest.Config{Host: newStubAPI(t).URL}, events.NewFakeRecorder(1)
			if settings.metrics, err = observeProcess(config, now); err != nil {
				t.Fatal(err)
			}
			settings.lockWatch, settings.events = engine.NewWatchStream(now, logr.Discard()), recorder
			added, err := ctrl.NewManager(config, ctrl.Options{
				Scheme: scheme, MapperProvider: newRESTMapper, Cache: cache.Options{NewInformer: settings.lockWatch.NewInformer},
			})
			if err != nil {
				t.Fatal(err)
			}
			into := &recordingManager{Manager: added}
			created, err := newEngine(into, settings, now, "lock-engine", via)
			if err != nil {
				t.Fatal(err)
			}
			var found []*lockevents.LongWaits
			for _, runnable := range into.added {
				if long, ok := runnable.(*lockevents.LongWaits); ok {
					found = append(found, long)
				}
			}
			if len(found) != 1 || found[0].Waits != created || found[0].Reporter.Recorder != recorder || found[0].Clock == nil {
				t.Errorf("the program runs %d reporters of long waits, want one of its engine: %+v", len(found), found)
			}
		})
	}
}
