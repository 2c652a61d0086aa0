package lab

import (
	"context"
	"net/http"
	"time"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/measure"
)

// replicaPoll is how often a replica that starts is asked whether it serves.
const replicaPoll = 10 * time.Millisecond

// Start says how a replica of the façade started.
type Start struct {
	// FirstAcquire is the time from the start of the process until it answered an acquire that does not wait, Ready
	// that until its health probe reported that it is ready, and Full that until it reported, at most once a second, that
	// its cache had all locks.
	FirstAcquire, Ready, Full time.Duration
	// AtRest is the resident memory when it was idle again, Peak the largest until then.
	AtRest, Peak int64
	// Processor is the processor time until then.
	Processor time.Duration
}

// StartReplica starts another replica of the façade, measures it until it is idle, and ends it. It fails if that takes
// longer than within.
func (l *Lab) StartReplica(ctx context.Context, within time.Duration) (Start, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	probes, err := FreeAddress(ctx)
	if err != nil {
		return Start{}, err
	}
	started := time.Now()
	flags := []string{"--facade-auth=none", "--health-probe-bind-address=" + probes}
	process, err := startFacade(ctx, l.Options.Operator, l.Cluster.OperatorKubeconfig(), flags, nil, nil)
	if err != nil {
		return Start{}, err
	}
	defer process.Stop()
	var start Start
	steps := []struct {
		took   *time.Duration
		isOver func(context.Context) bool
	}{
		{&start.FirstAcquire, process.acquires},
		{&start.Ready, func(ctx context.Context) bool { return isReady(ctx, probes) }},
		// Its answer takes a second as long as the cache is not full.
		{&start.Full, func(ctx context.Context) bool {
			return start.FirstAcquire > 0 && start.Ready > 0 && process.hasFullCache(ctx)
		}},
	}
	for start.FirstAcquire == 0 || start.Ready == 0 || start.Full == 0 {
		for _, step := range steps {
			if *step.took == 0 && step.isOver(ctx) {
				*step.took = time.Since(started)
			}
		}
		if err := measure.WaitUntil(ctx, time.Now().Add(replicaPoll)); err != nil {
			return Start{}, err
		}
	}
	pid := process.Command.Process.Pid
	if err := measure.AwaitIdle(ctx, pid); err != nil {
		return Start{}, err
	}
	if start.Processor, err = measure.CPUTime(pid); err != nil {
		return Start{}, err
	}
	if start.AtRest, err = measure.ResidentBytes(pid); err != nil {
		return Start{}, err
	}
	start.Peak, err = measure.PeakBytes(pid)
	return start, err
}

// acquires reports whether the façade acquires a free lock now, which it then releases.
func (f *Facade) acquires(ctx context.Context) bool {
	connection, err := contender.DialFacade(ctx, f.Address)
	if err != nil {
		return false
	}
	defer connection.Close()
	const key = "first"
	owner := contender.OwnerOf(0)
	if err := connection.Call(ctx, connection.Request(contender.AcquireBody(key, owner, contender.TTL, 0)), []byte(`"acquired":true`)); err != nil {
		return false
	}
	return connection.Call(ctx, connection.Request(contender.ReleaseBody(key, owner)), []byte(`"released":true`)) == nil
}

// hasFullCache reports whether the façade's cache has caught up with the API server.
func (f *Facade) hasFullCache(ctx context.Context) bool {
	connection, err := contender.DialFacade(ctx, f.Address)
	if err != nil {
		return false
	}
	defer connection.Close()
	isFull, err := connection.Asks(ctx, connection.Request(contender.HealthBody), []byte(`"cache":{"status":"healthy"`))
	return err == nil && isFull
}

// isReady reports whether the readiness probe at the address succeeds.
func isReady(ctx context.Context, probes string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+probes+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close() // the status is all there is to it
	return response.StatusCode == http.StatusOK
}
