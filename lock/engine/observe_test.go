package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/observe/enginemetrics"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/exposition"
)

// startObserved is start with metrics, and with an observer that is reported under "facade".
func startObserved(t *testing.T, etcd *etcd) (*engine.Engine, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	metrics, err := enginemetrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	running := startWith(t, engine.Options{
		Objects: etcd.locks, Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second,
		Informer: etcd, Stream: engine.NewTestStream(t).WatchStream,
		Observer: metrics.Observer(audit.Facade),
	})
	if err := metrics.Watch(audit.Facade, running.Waits); err != nil {
		t.Fatal(err)
	}
	return running, registry
}

func wantMetric(t *testing.T, registry *prometheus.Registry, of *metric.Definition, labels map[string]string, want float64) {
	t.Helper()
	if got, _ := exposition.Value(registry, of, labels); got != want {
		t.Errorf("%s%v is %v, want %v", of.Name, labels, got, want)
	}
}

func TestGrantsAreTimedByWhetherTheirCallersWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, registry := startObserved(t, etcd)
		count := func(free, waited float64) {
			t.Helper()
			wantMetric(t, registry, &metric.AcquireDuration, map[string]string{"via": "facade", "waited": "false"}, free)
			wantMetric(t, registry, &metric.AcquireDuration, map[string]string{"via": "facade", "waited": "true"}, waited)
		}
		acquire(t, engine, by("a"))
		count(1, 0)
		if _, err := engine.Acquire(t.Context(), "default", by("b")); err == nil {
			t.Error("a held lock was granted")
		}
		count(1, 0) // Only grants count.
		answers := make(chan answer, 2)
		queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
		queueUp(t.Context(), t, engine, waiting("c", time.Hour), answers)
		pass(5 * time.Second)
		release(t, engine, "a")
		<-answers
		count(1, 1)
		release(t, engine, "b")
		<-answers
		count(1, 2)
		release(t, engine, "c")
		synctest.Wait()                             // Until the watch has shown the end.
		acquire(t, engine, waiting("d", time.Hour)) // It may wait, but need not.
		count(2, 2)
		pass(31 * time.Second) // The lock expires, and a caller that may wait takes it over at once.
		acquire(t, engine, waiting("e", time.Hour))
		count(3, 2)
	})
}

func TestWaitsAreCountedByNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, registry := startObserved(t, etcd)
		acquire(t, engine, by("a"))
		answers := make(chan answer, 2)
		queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
		pass(5 * time.Second)
		queueUp(t.Context(), t, engine, waiting("c", time.Hour), answers)
		pass(5 * time.Second)
		of := map[string]string{"via": "facade", "namespace": "default"}
		wantMetric(t, registry, &metric.Waiters, of, 2)
		wantMetric(t, registry, &metric.LongestWait, of, 10)
		release(t, engine, "a")
		<-answers
		wantMetric(t, registry, &metric.Waiters, of, 1)
		wantMetric(t, registry, &metric.LongestWait, of, 5)
		release(t, engine, "b")
		<-answers
		synctest.Wait()
		for _, gauge := range []*metric.Definition{&metric.Waiters, &metric.LongestWait} {
			if _, exists := exposition.Value(registry, gauge, of); exists {
				t.Errorf("%s has a series without a waiter", gauge.Name)
			}
		}
	})
}

// A call of the façade waits for a minute at most. A client that calls again, as the SDK does, waits on.
func TestAWaitOfManyCallsIsOneLongWait(t *testing.T) {
	const calls, call, pause = 31, time.Minute, 4 * time.Second
	for name, test := range map[string]struct {
		owner func(call int) string
		want  time.Duration
	}{
		"under one owner token":       {func(int) string { return "b" }, calls*call + (calls-1)*pause},
		"under another one each time": {func(call int) string { return fmt.Sprint("b", call) }, call},
	} {
		bubbleOf(t, name, func(t *testing.T) {
			etcd := newEtcd()
			engine, registry := startObserved(t, etcd)
			first := by("a")
			first.TTL = time.Hour
			acquire(t, engine, first)
			var longest float64
			for number := range calls {
				answers := queued(t, engine, waiting(test.owner(number), call))
				pass(call - time.Second)
				longest, _ = exposition.Value(registry, &metric.LongestWait, map[string]string{"via": "facade", "namespace": "default"})
				pass(time.Second)
				if got := <-answers; !errors.Is(got.err, lock.ErrTimeout) {
					t.Fatal(got.err)
				}
				pass(pause)
			}
			if want := (test.want - time.Second).Seconds(); longest != want {
				t.Errorf("the longest wait is %v s, want %v", longest, want)
			}
		})
	}
}

// What is told is the use of the limit where it is used most.
func TestUseOfTheLimitsOfLinesIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		limits engine.WaiterLimits
		want   map[string]float64
	}{
		"limited": {engine.WaiterLimits{PerLock: 4, PerNamespace: 8, PerHolder: 16}, map[string]float64{
			"line_per_lock": 3. / 4, "line_per_namespace": 4. / 8, "line_per_caller": 5. / 16,
		}},
		"not limited": {engine.WaiterLimits{}, map[string]float64{"line_per_lock": 0, "line_per_namespace": 0, "line_per_caller": 0}},
	} {
		bubbleOf(t, name, func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			metrics, err := enginemetrics.New(registry)
			if err != nil {
				t.Fatal(err)
			}
			etcd := newEtcd()
			running := startWith(t, engine.Options{Objects: etcd.locks, Limits: rules.DefaultLimits(), Informer: etcd, Waiters: test.limits})
			for _, via := range []audit.Via{audit.Facade, audit.Controller} { // One process may have both.
				if err := metrics.Watch(via, running.Waits); err != nil {
					t.Fatal(err)
				}
			}
			used := func(want map[string]float64) {
				t.Helper()
				for limit, want := range want {
					wantMetric(t, registry, &metric.LimitUsage, map[string]string{"limit": limit}, want)
				}
			}
			none := map[string]float64{"line_per_lock": 0, "line_per_namespace": 0, "line_per_caller": 0}
			used(none)
			etcd.inject(faults{before: always(errRefused)}) // So all wait.
			ctx, leave := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			for _, of := range []struct {
				namespace, key, holder string
				waiters                int
			}{{"default", "a", "alice", 3}, {"default", "b", "bob", 1}, {"other", "a", "alice", 2}} {
				for i := range of.waiters {
					request := waiting(fmt.Sprint("w", i), time.Hour)
					request.Key, request.Holder = of.key, of.holder
					callers.Go(func() { _, _ = running.Acquire(ctx, of.namespace, request) }) // It waits until the end.
				}
			}
			pass(time.Second)
			used(test.want)
			leave()
			callers.Wait()
			synctest.Wait()
			used(none)
		})
	}
}

// What a long wait is told by: the lock, and how many wait for it.
func TestOnlyHeldLocksAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, _ := startObserved(t, etcd)
		waitedFor := func(want map[string]int) {
			t.Helper()
			got := map[string]int{}
			engine.WaitedFor(func(held *v1alpha1.Lock, callers int) {
				if _, isRepeated := got[held.Spec.Owner]; isRepeated {
					t.Errorf("the lock of %s is told twice", held.Spec.Owner)
				}
				got[held.Spec.Owner] = callers
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("holders whose locks are waited for, and by how many (-want +got):\n%s", diff)
			}
		}
		acquire(t, engine, by("a"))
		waitedFor(map[string]int{})
		answers := make(chan answer, 2)
		queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
		queueUp(t.Context(), t, engine, waiting("c", time.Hour), answers)
		waitedFor(map[string]int{"a": 2})
		release(t, engine, "a")
		<-answers
		waitedFor(map[string]int{"b": 1}) // The next grant.
		etcd.inject(faults{before: func(verb string) error {
			if verb == "update" || verb == "create" {
				return errRefused
			}
			return nil
		}})
		etcd.remove()
		synctest.Wait()
		waitedFor(map[string]int{}) // It is free.
		etcd.inject(faults{})
		<-answers
		waitedFor(map[string]int{})
	})
}

func TestAFreeLockWithWaitersIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, registry := startObserved(t, etcd)
		freeFor := func(want float64) {
			t.Helper()
			wantMetric(t, registry, &metric.FreeLockWaitedFor, map[string]string{"via": "facade"}, want)
		}
		acquire(t, engine, by("a"))
		answers := queued(t, engine, waiting("b", time.Hour))
		pass(5 * time.Second)
		freeFor(0)
		etcd.inject(faults{before: func(verb string) error { // The take-over does not get through.
			if verb == "update" || verb == "create" {
				return errRefused
			}
			return nil
		}})
		pass(36 * time.Second) // It expires after 30 s, and may be taken over a second later.
		freeFor(10)
		etcd.remove()
		pass(4 * time.Second)
		freeFor(4)
		etcd.inject(faults{})
		<-answers
		freeFor(0)
		release(t, engine, "b")
		request := waiting("c", time.Hour)
		request.Key = "another" // Nothing is known of it.
		etcd.inject(faults{before: always(errRefused)})
		queueUp(t.Context(), t, engine, request, answers)
		pass(3 * time.Second)
		freeFor(3)
		etcd.inject(faults{})
		<-answers
	})
}

func TestUnansweredWritesAreCountedByOutcome(t *testing.T) {
	type outcomes map[observe.Outcome]float64
	getIsLost := failing("get", errLostAnswer)
	acquired := func(t *testing.T, engine *engine.Engine) {
		t.Helper()
		acquire(t, engine, by("a"))
	}
	acquireOnce := func(t *testing.T, engine *engine.Engine) {
		t.Helper()
		_, _ = engine.Acquire(t.Context(), "default", by("a")) // Either may happen.
	}
	renew := func(t *testing.T, engine *engine.Engine) {
		t.Helper()
		_, _ = engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0) // Either may happen.
	}
	releaseOnce := func(t *testing.T, engine *engine.Engine) {
		t.Helper()
		_ = engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}) // Either may happen.
	}
	handOff := func(t *testing.T, engine *engine.Engine) {
		t.Helper()
		releaseOnce(t, engine)
		synctest.Wait()
	}
	withWaiter := func(t *testing.T, engine *engine.Engine) {
		t.Helper()
		acquired(t, engine)
		queueUp(t.Context(), t, engine, waiting("b", 2*time.Second), make(chan answer, 1))
	}
	free := func(*testing.T, *engine.Engine) {}
	cases := map[string]struct {
		operation observe.Operation
		before    func(*testing.T, *engine.Engine)
		fault     faults
		do        func(*testing.T, *engine.Engine)
		want      outcomes
	}{
		"an acquire that happened":    {observe.Acquire, free, faults{after: once("create", errLostAnswer)}, acquireOnce, outcomes{observe.Happened: 1}},
		"an acquire that did not":     {observe.Acquire, free, faults{before: once("create", errLostAnswer)}, acquireOnce, outcomes{observe.NotHappened: 1}},
		"an acquire in an outage":     {observe.Acquire, free, faults{after: once("create", errLostAnswer), before: getIsLost}, acquireOnce, outcomes{observe.Unknown: 1, observe.Late: 1}},
		"a renewal that happened":     {observe.Renew, acquired, faults{after: once("update", errLostAnswer)}, renew, outcomes{observe.Happened: 1}},
		"a renewal that did not":      {observe.Renew, acquired, faults{before: once("update", errLostAnswer)}, renew, outcomes{observe.NotHappened: 1}},
		"a renewal in an outage":      {observe.Renew, acquired, faults{after: once("update", errLostAnswer), before: getIsLost}, renew, outcomes{observe.Unknown: 1}},
		"a release that happened":     {observe.Release, acquired, faults{after: once("delete", errLostAnswer)}, releaseOnce, outcomes{observe.Happened: 1}},
		"a release that did not":      {observe.Release, acquired, faults{before: once("delete", errLostAnswer)}, releaseOnce, outcomes{observe.NotHappened: 1}},
		"a release in an outage":      {observe.Release, acquired, faults{after: once("delete", errLostAnswer), before: getIsLost}, releaseOnce, outcomes{observe.Unknown: 1}},
		"a hand-off that happened":    {observe.HandOff, withWaiter, faults{after: once("update", errLostAnswer)}, handOff, outcomes{observe.Happened: 1}},
		"a hand-off that did not":     {observe.HandOff, withWaiter, faults{before: once("update", errLostAnswer)}, handOff, outcomes{observe.NotHappened: 1}},
		"a hand-off in an outage":     {observe.HandOff, withWaiter, faults{after: always(errLostAnswer), before: getIsLost}, handOff, outcomes{observe.Unknown: 1, observe.Late: 1}},
		"an acquire that is answered": {observe.Acquire, free, faults{}, acquireOnce, outcomes{}},
	}
	for title, test := range cases {
		bubbleOf(t, title, func(t *testing.T) {
			etcd := newEtcd()
			engine, registry := startObserved(t, etcd)
			test.before(t, engine)
			pass(time.Second)
			etcd.inject(test.fault)
			test.do(t, engine)
			if test.want[observe.Late] > 0 {
				wantMetric(t, registry, &metric.UnansweredGrants, map[string]string{"via": "facade"}, 1)
			}
			etcd.inject(faults{})
			pass(2 * time.Minute)
			got := outcomes{}
			for _, outcome := range observe.AllOutcomes {
				labels := map[string]string{"via": "facade", "operation": string(test.operation), "outcome": string(outcome)}
				switch count, exists := exposition.Value(registry, &metric.UnansweredWrites, labels); {
				case !exists:
					t.Errorf("no series %v", labels)
				case count > 0:
					got[outcome] = count
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			wantMetric(t, registry, &metric.UnansweredGrants, map[string]string{"via": "facade"}, 0)
		})
	}
}

func TestLateRenewalsAreRecordedAsSuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		records := &audittest.Recorder{}
		running := startWith(t, engine.Options{Objects: etcd.locks, Limits: rules.DefaultLimits(), Informer: etcd, Audit: records})
		acquire(t, running, by("a"))
		for _, want := range []bool{false, true, false} {
			after := 20 * time.Second
			if want {
				after = 25 * time.Second
			}
			pass(after)
			renew(t, running)
			all := records.All()
			if last := all[len(all)-1]; last.Event != audit.Renewed || last.IsLate != want {
				t.Errorf("after %s of 30 s: %+v", after, last)
			}
		}
	})
}
