package lockevents

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

// The rates of a bounded recorder. Each Event is a write, and any user who may take locks can cause some.
// Events that repeat each other cost less: client-go counts them in a series.
const (
	namespaceBurst  = 25
	namespacePeriod = 5 * time.Second
	totalBurst      = 100
	totalPeriod     = 100 * time.Millisecond
	// maxNamespaces are remembered.
	maxNamespaces = 1024
)

// Bounded returns a recorder that drops what is more than so many Events of one namespace, and of all
// together: 25 at once and one more every 5 s, and 100 at once and 10 a second. It is safe for concurrent use.
func Bounded(next events.EventRecorder, now clock.PassiveClock) events.EventRecorder {
	return &bounded{next: next, clock: now, total: rate.NewLimiter(rate.Every(totalPeriod), totalBurst), namespaces: map[string]*rate.Limiter{}}
}

type bounded struct {
	next  events.EventRecorder
	clock clock.PassiveClock

	mu    sync.Mutex
	total *rate.Limiter
	// namespaces are those with Events lately.
	namespaces map[string]*rate.Limiter
}

// Eventf implements [events.EventRecorder].
func (b *bounded) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	of, err := apimeta.Accessor(regarding)
	if err == nil && b.admit(of.GetNamespace()) {
		b.next.Eventf(regarding, related, eventtype, reason, action, note, args...)
	}
}

func (b *bounded) admit(namespace string) bool {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.namespaces[namespace]
	if known == nil {
		if len(b.namespaces) >= maxNamespaces {
			b.forgetIdle(now)
		}
		known = rate.NewLimiter(rate.Every(namespacePeriod), namespaceBurst)
		b.namespaces[namespace] = known
	}
	// In this order, a namespace beyond its rate uses up nothing of the others.
	return known.AllowN(now, 1) && b.total.AllowN(now, 1)
}

// forgetIdle forgets the namespaces that have all of their rate left, or all if there are none. It needs the
// mutex.
func (b *bounded) forgetIdle(now time.Time) {
	for name, known := range b.namespaces {
		if known.TokensAt(now) >= namespaceBurst {
			delete(b.namespaces, name)
		}
	}
	if len(b.namespaces) >= maxNamespaces {
		clear(b.namespaces)
	}
}
