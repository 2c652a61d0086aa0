package fairqueue

import (
	"container/list"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Urgency is a class of requests. Classes are served in the order of their values, except in the turns
// that are reserved for others.
type Urgency int

const (
	// Stop is for what is known to have lost its lock while it runs.
	Stop Urgency = iota
	// Hold is for what holds its lock, which must be renewed before it expires.
	Hold
	// Start is for everything else.
	Start
	urgencies
)

// turns names the class that is served first in each turn; if it has no request, the most urgent one
// that has is served. So Stop has at least half of all turns when it needs them, and the others a
// quarter each: a flood of urgent requests delays the others, and does not starve them.
var turns = [...]Urgency{Stop, Hold, Stop, Start}

// New returns a rate-limiting work queue with a fair order. UrgencyOf tells the class of a request when
// it is queued and each time that it is added again before it is served: the request then moves to a
// more urgent class, never to a less urgent one. UrgencyOf must be safe for concurrent use, be fast, and
// not use the queue. The name is that of the queue's metrics; empty means none.
func New(name string, limiter workqueue.TypedRateLimiter[reconcile.Request], urgencyOf func(reconcile.Request) Urgency) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	order := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: newOrder(urgencyOf)})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: order})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		Name: name, DelayingQueue: delaying,
	})
}

// order is the order in which requests are served. It implements [workqueue.Queue] and is not safe for
// concurrent use: the work queue locks.
type order struct {
	urgencyOf func(reconcile.Request) Urgency
	queued    map[reconcile.Request]queued
	classes   [urgencies]namespaces
	// turn is an index of turns.
	turn int
}

// queued is where a request waits.
type queued struct {
	urgency Urgency
	place   *list.Element
}

func newOrder(urgencyOf func(reconcile.Request) Urgency) *order {
	return &order{urgencyOf: urgencyOf, queued: map[reconcile.Request]queued{}}
}

// Push implements [workqueue.Queue].
func (o *order) Push(request reconcile.Request) {
	urgency := o.urgencyOf(request)
	o.queued[request] = queued{urgency, o.classes[urgency].push(request)}
}

// Touch implements [workqueue.Queue].
func (o *order) Touch(request reconcile.Request) {
	before, isQueued := o.queued[request]
	if isQueued && o.urgencyOf(request) < before.urgency {
		o.classes[before.urgency].remove(before.place)
		o.Push(request)
	}
}

// Len implements [workqueue.Queue].
func (o *order) Len() int { return len(o.queued) }

// Pop implements [workqueue.Queue]. The queue must not be empty.
func (o *order) Pop() reconcile.Request {
	urgency := turns[o.turn]
	o.turn = (o.turn + 1) % len(turns)
	if o.classes[urgency].isEmpty() {
		urgency = Stop
		for o.classes[urgency].isEmpty() {
			urgency++
		}
	}
	request := o.classes[urgency].pop()
	delete(o.queued, request)
	return request
}

// namespaces are the requests of one class, of each namespace in the order of arrival. Its zero value
// is empty.
type namespaces struct {
	// turns has the line of each namespace with requests, in the order of their turns.
	turns list.List
	lines map[string]*line
}

// line has the requests of one namespace, and its place among the turns.
type line struct {
	requests list.List
	turn     *list.Element
}

func (n *namespaces) isEmpty() bool { return n.turns.Len() == 0 }

// push returns the place of the request in its line.
func (n *namespaces) push(request reconcile.Request) *list.Element {
	if n.lines == nil {
		n.lines = map[string]*line{}
	}
	of := n.lines[request.Namespace]
	if of == nil {
		of = &line{}
		of.turn = n.turns.PushBack(of)
		n.lines[request.Namespace] = of
	}
	return of.requests.PushBack(request)
}

func (n *namespaces) pop() reconcile.Request {
	of := n.turns.Front().Value.(*line)
	n.turns.MoveToBack(of.turn)
	place := of.requests.Front()
	n.remove(place)
	return place.Value.(reconcile.Request)
}

func (n *namespaces) remove(place *list.Element) {
	namespace := place.Value.(reconcile.Request).Namespace
	of := n.lines[namespace]
	of.requests.Remove(place)
	if of.requests.Len() == 0 {
		n.turns.Remove(of.turn)
		delete(n.lines, namespace)
	}
}
