package fairqueue

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func of(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// model is an order whose requests have the urgency that the test gives them.
type model struct {
	*order

	urgency map[reconcile.Request]Urgency
	// isQueued has the requests that were pushed and not popped since.
	isQueued map[reconcile.Request]bool
}

func newModel() *model {
	m := &model{urgency: map[reconcile.Request]Urgency{}, isQueued: map[reconcile.Request]bool{}}
	m.order = newOrder(func(request reconcile.Request) Urgency { return m.urgency[request] })
	return m
}

// add adds a request as a work queue does.
func (m *model) add(request reconcile.Request, urgency Urgency) {
	m.urgency[request] = urgency
	if m.isQueued[request] {
		m.Touch(request)
		return
	}
	m.isQueued[request] = true
	m.Push(request)
}

func (m *model) pop(t interface{ Fatalf(string, ...any) }) reconcile.Request {
	request := m.Pop()
	if !m.isQueued[request] {
		t.Fatalf("served %s, which was not queued", request)
	}
	delete(m.isQueued, request)
	return request
}

// addAny adds a request of one of the other namespaces.
func (m *model) addAny(t *rapid.T, others int) {
	namespace := fmt.Sprintf("other-%d", rapid.IntRange(0, others-1).Draw(t, "namespace"))
	name := fmt.Sprintf("lock-%d", rapid.IntRange(0, 50).Draw(t, "lock"))
	m.add(of(namespace, name), Urgency(rapid.IntRange(0, int(urgencies)-1).Draw(t, "urgency")))
}

func TestEachRequestIsServedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if m.Len() > 0 && rapid.IntRange(0, 2).Draw(t, "step") == 0 {
				m.pop(t)
			} else {
				m.addAny(t, 4)
			}
			if m.Len() != len(m.isQueued) {
				t.Fatalf("has %d requests, want %d", m.Len(), len(m.isQueued))
			}
		}
		for m.Len() > 0 {
			m.pop(t)
		}
		if len(m.isQueued) > 0 {
			t.Fatalf("lost %v", slices.Collect(maps.Keys(m.isQueued)))
		}
	})
}

// However many requests others have, and add meanwhile, and however urgent these are.
func TestARequestWaitsForOneTurnOfEachOtherNamespace(t *testing.T) {
	// turnsPer is in how many turns a class is sure to be served once.
	turnsPer := map[Urgency]int{Stop: 2, Hold: 4, Start: 4}
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		others := rapid.IntRange(1, 5).Draw(t, "others")
		for range rapid.IntRange(0, 300).Draw(t, "requests before") {
			m.addAny(t, others)
		}
		for range rapid.IntRange(0, m.Len()).Draw(t, "served before") {
			m.pop(t)
		}
		urgency := Urgency(rapid.IntRange(0, int(urgencies)-1).Draw(t, "urgency"))
		mine := of("mine", "lock")
		m.add(mine, urgency)
		bound := turnsPer[urgency] * (others + 1)
		for served := 1; m.pop(t) != mine; served++ {
			if served >= bound {
				t.Fatalf("not among the %d that were served since", served)
			}
			for range rapid.IntRange(0, 4).Draw(t, "requests meanwhile") {
				m.addAny(t, others)
			}
		}
	})
}

func TestTheMostUrgentOfANamespaceComesFirst(t *testing.T) {
	m := newModel()
	for number := range 100 {
		m.add(of("a", fmt.Sprintf("start-%d", number)), Start)
		m.add(of("a", fmt.Sprintf("hold-%d", number)), Hold)
	}
	m.add(of("a", "stop"), Stop)
	if first := m.pop(t); first.Name != "stop" {
		t.Errorf("served %s first", first)
	}
	counts := map[Urgency]int{}
	for range 80 {
		counts[m.urgency[m.pop(t)]]++
	}
	if counts[Hold] != 60 || counts[Start] != 20 {
		t.Errorf("served %v", counts)
	}
}

func TestARequestThatBecomesUrgentOvertakes(t *testing.T) {
	m := newModel()
	for number := range 100 {
		m.add(of("a", fmt.Sprint(number)), Hold)
	}
	m.add(of("a", "70"), Stop)
	m.add(of("a", "71"), Start) // Less urgent: it keeps its place.
	for _, want := range []string{"70", "0", "1"} {
		if served := m.pop(t); served.Name != want {
			t.Errorf("served %s, want %s", served, want)
		}
	}
	for range 70 {
		m.pop(t)
	}
	if m.isQueued[of("a", "71")] {
		t.Error("it lost its place")
	}
}

func TestTheWorkQueueUsesTheOrder(t *testing.T) {
	queue := New("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](), func(request reconcile.Request) Urgency {
		if request.Name == "stop" {
			return Stop
		}
		return Hold
	})
	defer queue.ShutDown()
	for _, request := range []reconcile.Request{of("a", "1"), of("a", "2"), of("a", "2"), of("b", "1"), of("a", "stop")} {
		queue.Add(request)
	}
	for _, want := range []reconcile.Request{of("a", "stop"), of("a", "1"), of("b", "1"), of("a", "2")} {
		if served, _ := queue.Get(); served != want {
			t.Errorf("served %s, want %s", served, want)
		}
	}
	if queue.Len() > 0 {
		t.Error("a request is served twice")
	}
}
