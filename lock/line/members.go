package line

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// members are the replicas that are ready, as far as this one knows.
type members struct {
	self   string
	timers clock.WithTicker
	log    logr.Logger
	// epoch is where the clock of this replica begins for the others.
	epoch time.Time
	// look tells how this replica keeps up. Tell tells the others when it loses touch, and when it does not any more.
	look func() (isLost bool, silence time.Duration)
	tell func(lag)

	mu sync.Mutex
	// running is set while run runs.
	running context.Context // the lifetime of the streams
	tasks   sync.WaitGroup
	ready   []string
	// isLeaving says that this replica is not to be home any more.
	isLeaving bool
	// own is how this replica has kept up last.
	own   lag
	peers map[string]*runningPeer
	// seemBehind are the replicas whose watches seem more silent than those of others, and since when they do. Of
	// these, behind are not to be home.
	seemBehind map[string]time.Time
	behind     map[string]bool
	now        view
}

// lag is how a replica keeps up with the API server, see [Local].
type lag struct {
	isLost  bool
	silence time.Duration
}

// maxLag is by how much the watch of a replica may be more silent than that of another one. It is behind until that is
// half as much.
const maxLag = time.Second

// behindAfter is for how long a replica must seem to be behind until it is. What it has last told of its silence is older
// than that of this replica, by a look and a ping: after each change, the others seem to be behind.
const behindAfter = 3 * pingPeriod

// areBehind returns which replicas had better not be home, of those that were before: those that have lost touch, and
// those that seem to be behind for long enough.
func areBehind(lags map[string]lag, before map[string]bool, since map[string]time.Time, now time.Time) map[string]bool {
	behind := map[string]bool{}
	for name, from := range since {
		if lags[name].isLost || before[name] || now.Sub(from) >= behindAfter {
			behind[name] = true
		}
	}
	return behind
}

// seemBehind returns which replicas have lost touch or are more silent than another one, of those that were behind before.
// A silence that is not known says nothing.
func seemBehind(lags map[string]lag, before map[string]bool) map[string]bool {
	least := time.Duration(math.MaxInt64)
	for _, of := range lags {
		if of.silence > 0 {
			least = min(least, of.silence)
		}
	}
	seeming := map[string]bool{}
	for name, of := range lags {
		bound := maxLag
		if before[name] {
			bound /= 2
		}
		if of.isLost || of.silence > 0 && of.silence-least > bound {
			seeming[name] = true
		}
	}
	return seeming
}

type runningPeer struct {
	*peer
	stop context.CancelFunc
}

// end ends the stream, and closes the connection.
func (p *runningPeer) end() {
	p.stop()
	_ = p.connection.Close()
}

// view is what this replica knows of the others at one time.
type view struct {
	// connected are the members with an open stream, and this one.
	connected []string
	// homes are those of them that keep up with the API server; all of them if none does.
	homes []string
	// changed is closed when there is a newer view.
	changed chan struct{}
}

func (v view) homeOf(of types.NamespacedName) string { return HomeOf(of, v.homes) }

func newMembers(self string, timers clock.WithTicker, log logr.Logger, look func() (bool, time.Duration), tell func(lag)) *members {
	return &members{
		self: self, timers: timers, log: log, epoch: timers.Now(), look: look, tell: tell, peers: map[string]*runningPeer{},
		now: view{connected: []string{self}, homes: []string{self}, changed: make(chan struct{})},
	}
}

func (m *members) view() view {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// isAlone reports whether there is no other replica to ask.
func (m *members) isAlone() bool {
	connected := m.view().connected
	return len(connected) == 1 && connected[0] == m.self
}

// leave ends the membership of this replica.
func (m *members) leave() {
	m.mu.Lock()
	m.isLeaving = true
	m.mu.Unlock()
	m.refresh()
}

func (m *members) streamTo(name string) *visitOut {
	m.mu.Lock()
	known := m.peers[name]
	m.mu.Unlock()
	if known == nil {
		return nil
	}
	return known.current()
}

func (m *members) run(ctx context.Context) error {
	m.mu.Lock()
	m.running = ctx
	for _, known := range m.peers {
		m.start(ctx, known)
	}
	m.mu.Unlock()
	m.watchSelf(ctx)
	m.mu.Lock()
	m.running = nil
	m.mu.Unlock()
	m.tasks.Wait()
	return nil
}

// steadyFor is for how long a replica that had lost touch must keep up until it is home again: lines would otherwise
// move to and fro.
const steadyFor = 3 * time.Second

// watchSelf looks whether this replica keeps up, until ctx ends.
func (m *members) watchSelf(ctx context.Context) {
	ticker := m.timers.NewTicker(pingPeriod)
	defer ticker.Stop()
	hasKeptUp, lastLost := false, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		isLost, silence := m.look()
		switch {
		case isLost:
			lastLost = m.timers.Now()
		case hasKeptUp:
			isLost = m.timers.Since(lastLost) < steadyFor
		default:
			hasKeptUp, lastLost = true, time.Time{} // It has begun.
		}
		m.mu.Lock()
		hasChanged := isLost != m.own.isLost
		m.own = lag{isLost: isLost, silence: silence}
		m.mu.Unlock()
		if hasChanged {
			m.tell(m.ownLag())
		}
		m.refresh()
	}
}

// ownLag is how this replica has kept up last.
func (m *members) ownLag() lag {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own
}

func (m *members) start(ctx context.Context, of *runningPeer) {
	ctx, cancel := context.WithCancel(ctx)
	of.stop = cancel
	m.tasks.Go(func() { of.run(ctx) })
}

func (m *members) set(names []string, connections map[string]*grpc.ClientConn) {
	m.mu.Lock()
	m.ready = slices.Clone(names)
	var former []*runningPeer
	for name, known := range m.peers {
		if connections[name] != known.connection {
			former = append(former, known)
			delete(m.peers, name)
		}
	}
	for name, connection := range connections {
		if _, isKnown := m.peers[name]; isKnown || name == m.self {
			continue
		}
		added := &runningPeer{peer: &peer{name: name, connection: connection, timers: m.timers, log: m.log, epoch: m.epoch, changed: m.refresh}, stop: func() {}}
		m.peers[name] = added
		if m.running != nil {
			m.start(m.running, added)
		}
	}
	m.mu.Unlock()
	m.refresh()
	for _, gone := range former {
		m.part(gone)
	}
}

// maxParting is how long the callers may take that leave a replica which is no member any more.
const maxParting = time.Second

// part ends the stream to a replica that is no member any more, and then the connection. A replica that stops is gone from
// the members while it still serves: the callers that wait there leave it first, as they know of other homes by now. So
// its last word to them is no doubt.
func (m *members) part(from *runningPeer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil {
		from.end()
		return
	}
	running := m.running
	m.tasks.Go(func() {
		defer from.end()
		over := m.timers.NewTimer(maxParting)
		defer over.Stop()
		ticker := m.timers.NewTicker(drainPeriod)
		defer ticker.Stop()
		for from.isAsked() {
			select {
			case <-ticker.C():
			case <-over.C():
				return
			case <-running.Done():
				return
			}
		}
	})
}

// count counts the other members that are ready, and of them those with an open stream.
func (m *members) count() (ready, connected int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.ready {
		if name == m.self {
			continue
		}
		ready++
		if known := m.peers[name]; known != nil && known.current() != nil {
			connected++
		}
	}
	return ready, connected
}

// refresh makes a new view, if it differs.
func (m *members) refresh() {
	m.mu.Lock()
	defer m.mu.Unlock()
	var connected, homes []string
	lags := map[string]lag{}
	for _, name := range m.ready {
		isConnected, now := !m.isLeaving, m.own
		if name != m.self {
			isConnected = false
			if known := m.peers[name]; known != nil {
				isConnected, now = known.state()
			}
		}
		if isConnected {
			connected = append(connected, name)
			lags[name] = now
		}
	}
	now, since := m.timers.Now(), map[string]time.Time{}
	for name := range seemBehind(lags, m.behind) {
		since[name] = now
		if from, ok := m.seemBehind[name]; ok {
			since[name] = from
		}
	}
	m.seemBehind, m.behind = since, areBehind(lags, m.behind, since, now)
	for _, name := range connected {
		if !m.behind[name] {
			homes = append(homes, name)
		}
	}
	if len(connected) == 0 {
		connected = []string{m.self}
	}
	if len(homes) == 0 {
		homes = slices.Clone(connected)
	}
	slices.Sort(connected)
	slices.Sort(homes)
	if slices.Equal(connected, m.now.connected) && slices.Equal(homes, m.now.homes) {
		return
	}
	m.log.Info("Sharing lines with these replicas", "replicas", connected, "homes", homes)
	close(m.now.changed)
	m.now = view{connected: connected, homes: homes, changed: make(chan struct{})}
}
