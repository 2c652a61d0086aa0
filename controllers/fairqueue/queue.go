package fairqueue

import (
	"slices"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Urgency is a class of requests. Classes are served in the order of their values, except in the turns
// that are reserved for others.
type Urgency int

const (
	// Stop is for what runs without its lock.
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
	// queued has the class of each request.
	queued  map[reconcile.Request]Urgency
	classes [urgencies]namespaces
	// turn is an index of turns.
	turn int
}

func newOrder(urgencyOf func(reconcile.Request) Urgency) *order {
	return &order{urgencyOf: urgencyOf, queued: map[reconcile.Request]Urgency{}}
}

// Push implements [workqueue.Queue].
func (o *order) Push(request reconcile.Request) {
	urgency := o.urgencyOf(request)
	o.queued[request] = urgency
	o.classes[urgency].push(request)
}

// Touch implements [workqueue.Queue].
func (o *order) Touch(request reconcile.Request) {
	before, isQueued := o.queued[request]
	if urgency := o.urgencyOf(request); isQueued && urgency < before {
		o.classes[before].remove(request)
		o.queued[request] = urgency
		o.classes[urgency].push(request)
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
	// next has the namespaces with requests, in the order of their turns.
	next     []string
	requests map[string][]reconcile.Request
}

func (n *namespaces) isEmpty() bool { return len(n.next) == 0 }

func (n *namespaces) push(request reconcile.Request) {
	if n.requests == nil {
		n.requests = map[string][]reconcile.Request{}
	}
	if len(n.requests[request.Namespace]) == 0 {
		n.next = append(n.next, request.Namespace)
	}
	n.requests[request.Namespace] = append(n.requests[request.Namespace], request)
}

func (n *namespaces) pop() reconcile.Request {
	namespace := n.next[0]
	n.next = n.next[1:]
	request := n.requests[namespace][0]
	if n.requests[namespace] = n.requests[namespace][1:]; len(n.requests[namespace]) > 0 {
		n.next = append(n.next, namespace)
	} else {
		delete(n.requests, namespace)
	}
	return request
}

func (n *namespaces) remove(request reconcile.Request) {
	namespace := request.Namespace
	at := slices.Index(n.requests[namespace], request)
	if n.requests[namespace] = slices.Delete(n.requests[namespace], at, at+1); len(n.requests[namespace]) > 0 {
		return
	}
	delete(n.requests, namespace)
	at = slices.Index(n.next, namespace)
	n.next = slices.Delete(n.next, at, at+1)
}
