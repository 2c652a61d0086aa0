package line

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/engine/places"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// Local is the engine of this replica.
type Local interface {
	lock.Backend
	lock.Pager
	lock.Streamer
	lock.LineReader
	lock.LineCounter
	// Those below are the methods of [engine.Engine].
	Enlist(ctx context.Context, namespace string, request lock.Request, take func(*v1alpha1.Lock, error) bool) (engine.Place, error)
	Known(namespace string, key v1alpha1.FullKey, proof lock.Proof) (limited lock.Proof, version string, isKnown bool)
	Shown(name types.NamespacedName) *v1alpha1.Lock
	OnRelease(tell func(release context.Context, ending *v1alpha1.Lock))
	ReleasedElsewhere(release context.Context, name types.NamespacedName, object types.UID)
	Keep(left places.Place)
	Disown(namespace string, acquisition rules.Acquisition)
	ReleaseGrant(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error
	HasLostTouch() bool
	// IsRunning reports whether callers can wait in it, and HasWaiters whether any do.
	IsRunning() bool
	HasWaiters() bool
	SeemsFree(name types.NamespacedName) bool
	// Now is the time by which it grants.
	Now() time.Time
}

// Options configures a [Line].
type Options struct {
	// Local is the engine of this replica. Required.
	Local Local
	// Self is the name of this replica among the members; that of a guest is of no member. Required.
	Self string
	// Clock measures waits. Nil means the real clock.
	Clock clock.WithTicker
	// Logger gets the streams that break. Zero discards.
	Logger logr.Logger
	// Traces takes the traces of calls to the homes of their lines. Zero takes none.
	Traces Traces
}

// Traces carries traces from one replica to another. It is injected, so that programs with the SDK need no
// library of traces.
type Traces struct {
	// Of returns the trace that a context is part of, such as a W3C traceparent; empty if there is none.
	Of func(context.Context) string
	// With returns a context that is part of such a trace.
	With func(context.Context, string) context.Context
}

// Line is a [lock.Backend] whose waiting callers stand in one line with those of all replicas. Safe for
// concurrent use.
type Line struct {
	Local
	self    string
	timers  clock.WithTicker
	traces  Traces
	members *members
	host    host
	waits   waits
	recent  recent
	// lookups bounds the reads of locks that homes which have gone may have granted.
	lookups chan struct{}
}

// maxLookups is how many such reads are under way at once.
const maxLookups = 16

var (
	_ lock.Backend     = (*Line)(nil)
	_ lock.Pager       = (*Line)(nil)
	_ lock.Streamer    = (*Line)(nil)
	_ lock.LineReader  = (*Line)(nil)
	_ lock.LineCounter = (*Line)(nil)
)

// New returns a line without other members; see [Line.SetMembers].
func New(options Options) (*Line, error) {
	if options.Local == nil || options.Self == "" {
		return nil, errors.New("line: Local and Self are required")
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Traces.Of == nil || options.Traces.With == nil {
		options.Traces = Traces{
			Of:   func(context.Context) string { return "" },
			With: func(ctx context.Context, _ string) context.Context { return ctx },
		}
	}
	timers := servertime.Timers(options.Clock)
	l := &Line{
		Local: options.Local, self: options.Self, timers: timers, traces: options.Traces,
		host:  host{local: options.Local, timers: timers, traces: options.Traces, visits: map[*visit]struct{}{}, gone: make(chan struct{}, 1)},
		waits: waits{byName: map[types.NamespacedName]int{}}, lookups: make(chan struct{}, maxLookups),
	}
	l.members = newMembers(options.Self, timers, options.Logger, options.Local.HasLostTouch, l.host.tell)
	l.host.epoch = l.members.epoch
	l.host.hasLostTouch = l.members.hasLostTouch
	l.OnRelease(l.tellHome)
	return l, nil
}

// Acquire implements [lock.Backend]. A call that does not wait is decided here. One that waits is, too, if the
// lock seems free, no other replica has its line, and it is the first here: nothing is known of a line elsewhere.
func (l *Line) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	if request.Wait <= 0 || !l.IsRunning() {
		return l.Local.Acquire(ctx, namespace, request)
	}
	came := l.timers.Now()
	name := types.NamespacedName{Namespace: namespace, Name: request.FullKey().ObjectName()}
	if l.members.view().homeOf(name) == l.self && l.SeemsFree(name) && l.waits.beginFirst(name) {
		granted, err := l.tryFirst(ctx, name, request)
		isFinal := err == nil || errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrRefused) || errors.Is(err, lock.ErrForbidden)
		if isFinal || ctx.Err() != nil {
			return granted, err
		}
		// A wait outlasts what may pass, such as a failure; the line tells of what does not.
	}
	wait := &lineWait{line: l, namespace: namespace, name: name, request: request, came: came, stood: came}
	if wait.request.Owner == "" {
		wait.request.Owner = lock.NewOwner()
	}
	wait.request.ID = uuid.NewString()
	wait.beginAt(l.cameAt(request.Since, came))
	return wait.run(ctx)
}

// tryFirst decides for a caller that beginFirst has counted.
func (l *Line) tryFirst(ctx context.Context, name types.NamespacedName, request lock.Request) (*v1alpha1.Lock, error) {
	defer l.waits.add(name, -1)
	request.Wait = 0
	return l.Local.Acquire(ctx, name.Namespace, request)
}

// cameAt returns when the caller of a request came, which may have been before the call, by the clock of waits.
func (l *Line) cameAt(since, called time.Time) time.Time {
	if since.IsZero() {
		return called
	}
	return called.Add(-max(0, l.Now().Sub(since)))
}

// waits counts the callers of this replica that wait in a line, or try whether they need to.
type waits struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]int
}

func (w *waits) add(name types.NamespacedName, number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byName[name] += number; w.byName[name] == 0 {
		delete(w.byName, name)
	}
}

// beginFirst counts a caller if no other one waits, and reports whether it does: of those that come at once for a free
// lock, one tries by itself, and the others stand in the line, which makes one try for all of them.
func (w *waits) beginFirst(name types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byName[name] > 0 {
		return false
	}
	w.byName[name] = 1
	return true
}

// Drain makes this replica home to no line any more, and moves the callers that wait here to the next homes, with
// their places. It returns when they are there, or ctx ends. A line without other members does nothing.
func (l *Line) Drain(ctx context.Context) {
	l.members.leave()
	l.host.drain()
	ticker := l.timers.NewTicker(drainPeriod)
	defer ticker.Stop()
	for !l.members.isAlone() && l.HasWaiters() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// drainPeriod is how often [Line.Drain] looks whether callers wait here still.
const drainPeriod = 10 * time.Millisecond

// Start keeps streams to the other members until ctx ends. It implements controller-runtime's
// manager.Runnable.
func (l *Line) Start(ctx context.Context) error {
	err := l.members.run(ctx)
	l.host.finish()
	return err
}

// SetMembers says which replicas are ready. Connections are those to the others, by their names. The line closes each one
// that it is not given again, once the callers that wait there have left: within a second. The name of this replica is among the names if it is ready, and never if
// it is a guest.
func (l *Line) SetMembers(names []string, connections map[string]*grpc.ClientConn) {
	l.members.set(names, connections)
}

// Peers counts the other replicas that are ready, and of them those that this one has an open stream to.
func (l *Line) Peers() (ready, connected int) { return l.members.count() }

// ServerOptions are those of a server that Register is called with.
func ServerOptions() []grpc.ServerOption { return []grpc.ServerOption{grpc.ForceServerCodec(codec{})} }

// Register adds the service for the other replicas to a server, which
// authenticates them and has the [ServerOptions].
func (l *Line) Register(server grpc.ServiceRegistrar) {
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "forrst.dev.line.v1.Line",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: streamDescription.StreamName, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return l.host.serve(stream) },
		}},
	}, struct{}{})
}

// Self is the name of this replica.
func (l *Line) Self() string { return l.self }
