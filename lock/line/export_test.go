package line

import (
	"github.com/google/uuid"

	"forrst.dev/lock-operator/lock"
)

// Open returns how many questions to other replicas have no answer yet, and how many of them stand in the lines here.
func (l *Line) Open() (asked, standing int) {
	l.members.mu.Lock()
	defer l.members.mu.Unlock()
	for _, peer := range l.members.peers {
		if stream := peer.current(); stream != nil {
			stream.mu.Lock()
			asked += len(stream.asked)
			stream.mu.Unlock()
		}
	}
	l.host.mu.Lock()
	defer l.host.mu.Unlock()
	for visit := range l.host.visits {
		visit.mu.Lock()
		standing += len(visit.places) + len(visit.offers)
		visit.mu.Unlock()
	}
	return asked, standing
}

// Repeat sends the question of the last caller that waits at the home again.
func Repeat(edge *Line, home, namespace string, request lock.Request) {
	stream := edge.members.streamTo(home)
	stream.mu.Lock()
	id := stream.lastID
	stream.mu.Unlock()
	stream.outbox.put(question{ID: id, Kind: enlist, Namespace: namespace, Acquisition: &request.Acquisition, Wait: request.Wait})
}

// Enlist lets a caller of whom the edge remembers nothing stand in the line of another replica.
func Enlist(edge *Line, home, namespace string, request lock.Request) {
	asked := question{Kind: enlist, Namespace: namespace, Acquisition: &request.Acquisition, Wait: request.Wait, Door: "rest"}
	asked.Acquisition.ID = uuid.NewString()
	edge.members.streamTo(home).ask(asked, recipient{call: make(chan answer, 1)})
}

// Changed is closed when this replica knows of other homes.
func (l *Line) Changed() <-chan struct{} { return l.members.view().changed }
