package line_test

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/line"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// replicas are operators on one etcd.
type replicas struct {
	t    *testing.T
	etcd *etcd
	all  map[string]*replica
	// waiters bounds those of each replica.
	waiters engine.WaiterLimits
	// tracer follows the waits at all replicas; nil if none does.
	tracer engine.Tracer
	// clocks are those of the machines by the names of their replicas. One that has none shows the right time.
	clocks map[string]*machineClock
	// filling is how long the watch of a replica takes to show what there is.
	filling time.Duration
	began   time.Time
	// server are further options of the servers.
	server []grpc.ServerOption
}

type replica struct {
	*line.Line
	t        *testing.T
	engine   *engine.Engine
	listener *bufconn.Listener
	server   *grpc.Server
	// kill ends the replica as SIGKILL does, and stop as SIGTERM does.
	kill, stop func()
	// isSilent says that nothing passes between it and the others, isMute that nothing passes from it, isDeaf that
	// nothing passes to it that it has asked for, and no connection breaks. isDead says that it does not reach etcd.
	isSilent, isMute, isDeaf, isDead atomic.Bool
	// isKilled says that no answer of it counts any more, and hasEnded that it has been killed or stopped.
	isKilled, hasEnded atomic.Bool
	// before is called ahead of each of its requests.
	before atomic.Pointer[func(verb string)]
	// fates tells what becomes of its next write. Late is after what time one is done that is done later; zero means
	// lateWrite.
	fates atomic.Pointer[func() fate]
	late  atomic.Int64
	// known are the names of the replicas that there are, and find returns the one that has a name at present. Connections
	// are those to them, without those that it has forgotten.
	known       []string
	find        func(name string) *replica
	connections map[string]*grpc.ClientConn
}

// start starts replicas whose informers are behind by the delays.
func start(t *testing.T, delays ...time.Duration) *replicas {
	t.Helper()
	r := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}
	for i, delay := range delays {
		r.add(fmt.Sprintf("replica-%d", i), delay)
	}
	r.meet()
	return r
}

func (r *replicas) add(name string, delay time.Duration) {
	r.t.Helper()
	r.addWith(name, delay, func(own *engine.Engine) line.Local { return own })
}

// addWith adds a replica whose line has what local makes of its engine.
func (r *replicas) addWith(name string, delay time.Duration, local func(*engine.Engine) line.Local) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	added := &replica{t: r.t}
	options := engine.Options{
		Objects: func(string) engine.Objects { return reach{r.etcd, added} }, Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second,
		Waiters: r.waiters, Tracer: r.tracer,
	}
	if at := r.clocks[name]; at != nil {
		now, reach := servertime.New(at), options.Objects
		options.Clock, options.Objects = now, func(namespace string) engine.Objects { return dated{reach(namespace), now} }
	}
	options.Informer = r.etcd.watch(ctx, delay, r.filling)
	engine, err := engine.New(options)
	if err != nil {
		r.t.Fatal(err)
	}
	running.Go(func() { _ = engine.Start(ctx) })
	line, err := line.New(line.Options{Local: local(engine), Self: name, Clock: options.Clock, Traces: traces})
	if err != nil {
		r.t.Fatal(err)
	}
	running.Go(func() { _ = line.Start(ctx) })
	added.Line, added.engine, added.listener, added.server = line, engine, bufconn.Listen(1<<16), serverOf(line, r.server...)
	running.Go(func() { _ = added.server.Serve(added.listener) })
	added.stop = func() {
		added.hasEnded.Store(true)
		added.server.Stop()
		cancel()
		running.Wait()
	}
	added.kill = func() {
		added.isDead.Store(true)
		added.stop()
	}
	r.t.Cleanup(added.stop)
	r.all[name] = added
}

func serverOf(of *line.Line, options ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append(line.ServerOptions(), options...)...)
	of.Register(server)
	return server
}

// meet tells all replicas of each other, and waits until they have met.
func (r *replicas) meet() {
	r.t.Helper()
	names := r.names()
	for _, name := range names {
		r.all[name].knows(names, func(other string) *replica { return r.all[other] })
	}
	<-time.After(time.Second)
	synctest.Wait()
}

// knows tells the replica of those that there are. Find returns the one that has a name at present.
func (r *replica) knows(names []string, find func(name string) *replica) {
	r.t.Helper()
	r.known, r.find, r.connections = names, find, map[string]*grpc.ClientConn{}
	r.forgets("")
}

// forgets leaves the replica with the members that do not have the name.
func (r *replica) forgets(name string) {
	r.t.Helper()
	names := slices.DeleteFunc(slices.Clone(r.known), func(each string) bool { return each == name })
	connections := map[string]*grpc.ClientConn{}
	for _, other := range names {
		if other == r.Self() {
			continue
		}
		if connections[other] = r.connections[other]; connections[other] == nil {
			connections[other] = r.connect(other)
		}
	}
	r.connections = connections
	r.SetMembers(names, connections)
}

// forget leaves the replicas without one that serves still, as one that stops does at first.
func (r *replicas) forget(gone *replica) {
	r.t.Helper()
	for _, at := range r.all {
		at.forgets(gone.Self())
	}
}

func (r *replica) connect(other string) *grpc.ClientConn {
	r.t.Helper()
	find := r.find
	connection, err := grpc.NewClient("passthrough:"+other,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.dial(ctx, find(other)) }))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func (r *replica) dial(ctx context.Context, other *replica) (net.Conn, error) {
	connection, err := other.listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	isSilent := func() bool { return r.isSilent.Load() || other.isSilent.Load() }
	isDeaf := func() bool { return isSilent() || r.isDeaf.Load() }
	return newSilenceable(connection, isDeaf, func() bool { return isSilent() || r.isMute.Load() }), nil
}

func (r *replicas) names() []string {
	var names []string
	for name := range r.all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func by(owner string, wait time.Duration) lock.Request {
	return lock.Request{
		Acquisition: rules.Acquisition{Key: "billing:report", Owner: owner, TTL: time.Hour, Holder: "alice"}, Wait: wait,
	}
}

const key = v1alpha1.FullKey("lock:billing:report")

func (r *replicas) at(i int) *replica { return r.all[r.names()[i%len(r.all)]] }

// Callers that came to different replicas get the lock in the order in which they came, in one write each,
// and without a read.
func TestOneLineAcrossReplicas(t *testing.T) {
	for _, delays := range [][]time.Duration{
		{time.Millisecond, time.Millisecond, time.Millisecond},
		{time.Millisecond, 500 * time.Millisecond, time.Millisecond},
		{500 * time.Millisecond, time.Millisecond, 500 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(delays), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testOneLine(t, delays) })
		})
	}
}

func testOneLine(t *testing.T, delays []time.Duration) {
	t.Helper()
	replicas := start(t, delays...)
	replicas.hold(replicas.at(0), "first")
	<-time.After(time.Second)
	const waiters = 300
	callers := &served{replicas: replicas}
	for i := range waiters {
		callers.come(replicas.at(i), by(fmt.Sprint(i), time.Hour), 5*time.Millisecond)
		<-time.After(2 * time.Millisecond)
	}
	<-time.After(time.Second)
	replicas.wantInLine(waiters)
	writes, reads := replicas.etcd.requests()
	replicas.release(replicas.at(0), "first")
	callers.wantInTurn(waiters)
	nowWrites, nowReads := replicas.etcd.requests()
	if made := nowWrites - writes; made > waiters*102/100+3 || nowReads != reads {
		t.Errorf("%d hand-offs took %d writes and %d reads", waiters, made, nowReads-reads)
	}
}

// wantInLine fails unless each replica tells who stands in line.
func (r *replicas) wantInLine(waiters int) {
	r.t.Helper()
	for _, at := range r.all {
		waiting, isComplete, err := at.Waiters(r.t.Context(), "default", key, 1000)
		if err != nil || !isComplete || len(waiting) != waiters {
			r.t.Fatalf("%d callers are said to wait: %v", len(waiting), err)
		}
		for i, waiter := range waiting {
			if waiter.Place != i+1 || waiter.Until.Sub(waiter.Since) != time.Hour {
				r.t.Errorf("waiter %d is said to be %+v", i, waiter)
			}
		}
		inNamespace, isComplete, err := at.Waiters(r.t.Context(), "default", "", 10)
		if err != nil || isComplete != (waiters <= 10) || !reflect.DeepEqual(inNamespace, waiting[:10]) {
			r.t.Errorf("in the namespace there wait %v: %v", inNamespace, err)
		}
	}
}

// The callers of a home that dies keep their places at the next one, and the lock that it may just have granted
// is not lost.
func TestTheLineOutlivesItsHome(t *testing.T) {
	for name, fault := range map[string]func(*replica){
		"killed": func(home *replica) { home.kill() },
		"stopped": func(home *replica) {
			home.Drain(home.t.Context())
			home.stop()
		},
		"partitioned": func(home *replica) { home.server.Stop() },
	} {
		// A home that lives on may hand the lock to a caller whose stream breaks last, before one whose stream has
		// broken already and who would have been next.
		mayPass := 0
		if name == "partitioned" {
			mayPass = 1
		}
		t.Run(name, func(t *testing.T) {
			for try := range 17 {
				synctest.Test(t, func(t *testing.T) { testFaultOfTheHome(t, fault, mayPass, time.Duration(try)*633*time.Microsecond) })
			}
		})
	}
}

func testFaultOfTheHome(t *testing.T, fault func(*replica), mayPass int, after time.Duration) {
	t.Helper()
	replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
	home := replicas.home()
	var edges []*replica
	for name, at := range replicas.all {
		if name != home {
			edges = append(edges, at)
		}
	}
	first, err := edges[0].Acquire(t.Context(), "default", by("first", 0))
	if err != nil {
		t.Fatal(err)
	}
	const waiters = 200
	var mu sync.Mutex
	var order []int
	var holders int
	var lastGrant time.Time
	var longest time.Duration
	var all sync.WaitGroup
	for i := range waiters {
		at := edges[i%2]
		all.Go(func() {
			owner := fmt.Sprint(i)
			if _, err := at.Acquire(t.Context(), "default", by(owner, time.Hour)); err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			mu.Lock()
			holders++
			if holders > 1 {
				t.Error("two hold the lock")
			}
			order = append(order, i)
			longest, lastGrant = max(longest, time.Since(lastGrant)), time.Now()
			mu.Unlock()
			<-time.After(time.Millisecond)
			mu.Lock()
			holders--
			mu.Unlock()
			if err := at.Release(t.Context(), "default", key, lock.Proof{Owner: owner}); err != nil {
				t.Errorf("release of %d: %v", i, err)
			}
		})
		<-time.After(time.Millisecond)
	}
	lastGrant = time.Now()
	if err := edges[0].Release(t.Context(), "default", key, lock.Proof{Owner: first.Spec.Owner}); err != nil {
		t.Fatal(err)
	}
	<-time.After(100*time.Millisecond + after)
	fault(replicas.all[home])
	all.Wait()
	if passed(order) > mayPass || len(order) != waiters {
		t.Errorf("killed after %v: the order of grants is %v", after, order)
	}
	if longest > 2*time.Second {
		t.Errorf("killed after %v: no grant for %v", after, longest)
	}
}

// passed counts the neighbours that are out of order.
func passed(order []int) int {
	count := 0
	for i := range order[1:] {
		if order[i+1] < order[i] {
			count++
		}
	}
	return count
}

// nextHome is home after the first.
func (r *replicas) nextHome() *replica {
	first := r.home()
	return r.all[line.HomeOf(types.NamespacedName{Namespace: "default", Name: key.ObjectName()},
		slices.DeleteFunc(r.names(), func(name string) bool { return name == first }))]
}

// home returns the replica that has the line.
func (r *replicas) home() string {
	return line.HomeOf(types.NamespacedName{Namespace: "default", Name: key.ObjectName()}, r.names())
}
