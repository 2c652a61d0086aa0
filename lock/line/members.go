package line

import (
	"context"
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
	// look reports whether this replica has lost touch with the API server. Tell tells the others whenever that changes.
	look func() (isLost bool)
	tell func(isLost bool)

	mu sync.Mutex
	// running is set while run runs.
	running context.Context // the lifetime of the streams
	tasks   sync.WaitGroup
	ready   []string
	// isLeaving says that this replica is not to be home any more.
	isLeaving bool
	// isLost says that this replica has lost touch with the API server.
	isLost bool
	peers  map[string]*runningPeer
	now    view
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
	// homes are those of them that have not lost touch with the API server; all of them if all have.
	homes []string
	// changed is closed when there is a newer view.
	changed chan struct{}
}

func (v view) homeOf(of types.NamespacedName) string { return HomeOf(of, v.homes) }

func newMembers(self string, timers clock.WithTicker, log logr.Logger, look func() bool, tell func(isLost bool)) *members {
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
		isLost := m.look()
		switch {
		case isLost:
			lastLost = m.timers.Now()
		case hasKeptUp:
			isLost = m.timers.Since(lastLost) < steadyFor
		default:
			hasKeptUp, lastLost = true, time.Time{} // It has begun.
		}
		m.mu.Lock()
		hasChanged := isLost != m.isLost
		m.isLost = isLost
		m.mu.Unlock()
		if hasChanged {
			m.tell(isLost)
			m.refresh()
		}
	}
}

// hasLostTouch reports whether this replica has lost touch with the API server.
func (m *members) hasLostTouch() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isLost
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
	for _, name := range m.ready {
		isConnected, isLost := !m.isLeaving, m.isLost
		if name != m.self {
			isConnected = false
			if known := m.peers[name]; known != nil {
				isConnected, isLost = known.state()
			}
		}
		if isConnected {
			connected = append(connected, name)
		}
		if isConnected && !isLost {
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
