package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// probeEvery is the pause between two probes.
	probeEvery = 150 * time.Millisecond
	// probeTimeout is how long a probe waits for an answer.
	probeTimeout = 2 * time.Second
	// probeTTL is how long a probe's object remains if its delete fails; then it is reaped.
	probeTTL = 2 * time.Second
	// stateEvery is how often the state of the process is reported.
	stateEvery = time.Second
)

// prober finds out whether requests of this process get through: it creates and deletes a
// Lock of its own, over the connections that the product uses, again and again. It shares
// nothing else with the product. Its answers do not reach the clock of the product.
type prober struct {
	objects    engine.Objects
	namespace  string
	leadership *leadership.Election
	reports    *reports
}

// newProber returns a prober for the namespace. config must not be wrapped: the transport
// below all wrappers is the same for all clients of one server.
func newProber(config *rest.Config, namespace string, reports *reports) (*prober, error) {
	config = rest.CopyConfig(config)
	config.Timeout = probeTimeout
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	objects, err := engine.NewObjectClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &prober{objects: objects.Locks(namespace), namespace: namespace, reports: reports}, nil
}

// Start implements controller-runtime's manager.Runnable.
func (p *prober) Start(ctx context.Context) error {
	var reporting sync.WaitGroup
	defer reporting.Wait()
	reporting.Go(func() { p.reportState(ctx) })
	for ctx.Err() == nil {
		sent := time.Now()
		created, err := p.probe(ctx, sent)
		done := time.Now()
		p.reports.write("probe %d %d %d %t", sent.UnixNano(), created.UnixNano(), done.UnixNano(), err == nil)
		sleep(ctx, probeEvery)
	}
	return nil
}

// NeedLeaderElection is false: every replica probes.
func (p *prober) NeedLeaderElection() bool { return false }

// probe also returns when the create was answered. The name of the object says so in
// advance: it has the time of the sending.
func (p *prober) probe(ctx context.Context, sent time.Time) (time.Time, error) {
	desired := rules.Grant(p.namespace, rules.Acquisition{
		Scope: v1alpha1.ScopeGlobal, Key: fmt.Sprintf("%s%d-%d", probePrefix, os.Getpid(), sent.UnixNano()),
		Owner: lock.NewOwner(), Holder: "prober", TTL: probeTTL,
	}, rules.DefaultLimits(), sent)
	stored, err := p.objects.Create(ctx, desired, metav1.CreateOptions{})
	created := time.Now()
	if err != nil {
		return created, err
	}
	return created, p.objects.Delete(ctx, stored.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion},
	})
}

// probePrefix begins the keys of probes.
const probePrefix = "probe-"

// shows reports each probe of this process that the informer shows: the watch works.
func (p *prober) shows() toolscache.ResourceEventHandler {
	own := fmt.Sprintf("%s%d-", probePrefix, os.Getpid())
	return toolscache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		if shown, ok := object.(*v1alpha1.Lock); ok {
			if sent, isOwn := strings.CutPrefix(shown.Spec.Key, own); isOwn {
				p.reports.write("shown %s %d", sent, time.Now().UnixNano())
			}
		}
	}}
}

// reportState writes what a leak would make grow, and whether this replica leads.
func (p *prober) reportState(ctx context.Context) {
	for sleep(ctx, stateEvery) {
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		files, _ := os.ReadDir("/proc/self/fd") // Elsewhere there is none, and no bound.
		p.reports.write("state %d %d %d %d %t", time.Now().UnixNano(),
			runtime.NumGoroutine(), memory.HeapAlloc, len(files), p.leadership.IsLeader())
	}
}

func sleep(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// reports writes lines. Safe for concurrent use.
type reports struct {
	mu  sync.Mutex
	out io.Writer
}

func (r *reports) write(format string, values ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", values...) // The test that reads may have ended.
}
