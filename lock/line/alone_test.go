package line_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"forrst.dev/lock-operator/lock"
)

// episode is what callers of one replica were told, and when, and which requests that cost.
type episode struct {
	told          []string
	writes, reads int
}

// A line without other members serves as its engine does by itself, opens no connection and starts no stream.
func TestALineAloneServesAsItsEngine(t *testing.T) {
	var through [2]episode
	var dials atomic.Int32
	for index, serve := range []func(*replica) lock.Backend{
		func(of *replica) lock.Backend { return of.engine },
		func(of *replica) lock.Backend { return of.Line },
	} {
		synctest.Test(t, func(t *testing.T) {
			replicas := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}
			replicas.add("alone", time.Millisecond)
			alone := replicas.at(0)
			alone.SetMembers([]string{"alone"}, map[string]*grpc.ClientConn{"alone": countedConnection(t, alone, &dials)})
			<-time.After(time.Second)
			through[index] = replicas.live(serve(alone))
			if asked, standing := alone.Open(); asked+standing > 0 {
				t.Errorf("%d questions are open, and %d callers stand in line", asked, standing)
			}
			if ready, connected := alone.Peers(); ready+connected > 0 {
				t.Errorf("%d other replicas are ready, and %d connected", ready, connected)
			}
		})
	}
	if made := dials.Load(); made > 0 {
		t.Errorf("%d connections were opened", made)
	}
	if engine, line := through[0], through[1]; !slices.Equal(engine.told, line.told) || engine.writes != line.writes || engine.reads != line.reads {
		t.Errorf("through the engine: %+v\nthrough the line: %+v", engine, line)
	}
}

// countedConnection is a connection to a replica that counts how often it is opened.
func countedConnection(t *testing.T, to *replica, dials *atomic.Int32) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("passthrough:"+to.Self(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			dials.Add(1)
			return to.listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// live lets callers come who get the lock at once, are refused, wait, leave, wait in vain, and come again.
func (r *replicas) live(at lock.Backend) episode {
	began := time.Now()
	var lived episode
	var mu sync.Mutex
	var all sync.WaitGroup
	note := func(who string, err error) {
		mu.Lock()
		defer mu.Unlock()
		lived.told = append(lived.told, fmt.Sprintf("%v: %s: %v", time.Since(began), who, reasonOf(err)))
	}
	acquire := func(ctx context.Context, owner string, wait time.Duration) {
		all.Go(func() {
			granted, err := at.Acquire(ctx, "default", by(owner, wait))
			note(owner, err)
			if err == nil && granted.Spec.Owner != owner {
				r.t.Errorf("%s is granted the lock of %s", owner, granted.Spec.Owner)
			}
		})
		<-time.After(10 * time.Millisecond)
	}
	end := func(owner string) {
		note("release by "+owner, at.Release(r.t.Context(), "default", key, lock.Proof{Owner: owner}))
		<-time.After(10 * time.Millisecond)
	}
	acquire(r.t.Context(), "first", time.Minute)
	acquire(r.t.Context(), "impatient", 0)
	leaving, leave := context.WithCancel(r.t.Context())
	acquire(leaving, "leaving", time.Hour)
	acquire(r.t.Context(), "brief", time.Second)
	acquire(r.t.Context(), "second", time.Hour)
	acquire(r.t.Context(), "third", time.Hour)
	leave()
	<-time.After(2 * time.Second)
	_, err := at.Renew(r.t.Context(), "default", key, lock.Proof{Owner: "first"}, 0)
	note("renewal by first", err)
	end("another")
	acquire(r.t.Context(), "brief", time.Hour) // At its place of before.
	for _, owner := range []string{"first", "brief", "second", "third"} {
		end(owner)
	}
	all.Wait()
	if owner := r.etcd.owner(); owner != "" {
		r.t.Errorf("the lock is held by %q", owner)
	}
	lived.writes, lived.reads = r.etcd.requests()
	slices.Sort(lived.told) // At the same moment, a caller may be told before the one that it follows.
	return lived
}

// reasonOf is the part of an error that callers go by.
func reasonOf(err error) error {
	for _, each := range []error{lock.ErrTimeout, lock.ErrHeld, lock.ErrOwnerMismatch, lock.ErrNotHeld, lock.ErrUnavailable, context.Canceled} {
		if errors.Is(err, each) {
			return each
		}
	}
	return err
}
