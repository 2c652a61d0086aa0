package line_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/line"
)

type traceKey struct{}

// traces stands in for a library of traces.
var traces = line.Traces{
	Of: func(ctx context.Context) string {
		trace, _ := ctx.Value(traceKey{}).(string)
		return trace
	},
	With: func(ctx context.Context, trace string) context.Context {
		return context.WithValue(ctx, traceKey{}, trace)
	},
}

// links are those of waits to the releases that have ended them, by their traces. It implements the engine's Tracer.
type links struct {
	mu    sync.Mutex
	found []string
}

func (*links) BeginWait(ctx context.Context, _ string, _ v1alpha1.FullKey) context.Context {
	return ctx
}

func (*links) Within(ctx, _ context.Context) context.Context { return ctx }

func (*links) EndWait(context.Context, error) {}

func (l *links) EndedBy(wait, release context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found = append(l.found, traces.Of(wait)+" to "+traces.Of(release))
}

// The wait is at the home of its line, in the trace of its caller, and links to the release at another replica that has
// ended it.
func TestAWaitLinksToTheReleaseAtAnotherReplica(t *testing.T) {
	const call, release = "the call", "the release"
	for name, test := range map[string]struct {
		isHeldAtHome, isReleasedAtHome, isForced bool
	}{
		"granted and released at another replica":      {},
		"granted there, and released by force":         {isForced: true},
		"granted at home, released at another one":     {isHeldAtHome: true},
		"granted and released at home":                 {isHeldAtHome: true, isReleasedAtHome: true},
		"granted at another replica, released at home": {isReleasedAtHome: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				traced := &links{}
				replicas := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}, tracer: traced}
				for _, name := range []string{"replica-0", "replica-1", "replica-2"} {
					replicas.add(name, time.Millisecond)
				}
				replicas.meet()
				edges := replicas.edges()
				at := func(isHome bool) *replica {
					if isHome {
						return replicas.all[replicas.home()]
					}
					return edges[0]
				}
				replicas.hold(at(test.isHeldAtHome), "first")
				granted := make(chan error, 1)
				go func() {
					_, err := edges[1].Acquire(traces.With(t.Context(), call), "default", by("next", time.Hour))
					granted <- err
				}()
				<-time.After(time.Second)
				releasing, from := traces.With(t.Context(), release), at(test.isReleasedAtHome)
				end := func() error { return from.Release(releasing, "default", key, lock.Proof{Owner: "first"}) }
				if test.isForced {
					end = func() error { return from.ForceRelease(releasing, "default", key, "stuck") }
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
				if err := <-granted; err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if want := []string{call + " to " + release}; !slices.Equal(traced.found, want) {
					t.Errorf("the links are %q, want %q", traced.found, want)
				}
			})
		})
	}
}
