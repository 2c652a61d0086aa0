package heartbeat_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/heartbeat"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/engine/digest"
	"forrst.dev/lock-operator/lock/rules"
)

// cluster keeps the one lock. Each write takes latency, and the watches show it as late again.
type cluster struct {
	engine.Objects

	latency time.Duration
	// answerTime is how long the answer to an update takes.
	answerTime time.Duration

	mu       sync.Mutex
	current  *v1alpha1.Lock
	revision int
	handlers []cache.ResourceEventHandler
	// written is when the lock was written; refused counts the writes that were too late.
	written []time.Time
	refused int
	// said are the digests that were written.
	said []string
}

func (c *cluster) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlers = append(c.handlers, handler)
	return nil, nil // the registration is not used
}

// store is called under the mutex.
func (c *cluster) store(object *v1alpha1.Lock) *v1alpha1.Lock {
	c.revision++
	object.ResourceVersion = strconv.Itoa(c.revision)
	c.current = object
	c.written = append(c.written, time.Now())
	c.said = append(c.said, object.Annotations[v1alpha1.DigestAnnotation])
	handlers := slices.Clone(c.handlers)
	time.AfterFunc(c.latency, func() {
		for _, handler := range handlers {
			handler.OnUpdate(nil, rules.Stripped(object))
		}
	})
	return object
}

// locks acquires the lock.
type locks struct {
	lock.Backend

	cluster *cluster
}

// Acquire implements [lock.Backend].
func (l locks) Acquire(_ context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	c := l.cluster
	pass(c.latency)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		return nil, rules.HeldBy(c.current)
	}
	request.Owner = "token"
	return c.store(rules.Grant(namespace, request.Acquisition, rules.DefaultLimits(), time.Now())), nil
}

func (c *cluster) Update(_ context.Context, object *v1alpha1.Lock, _ metav1.UpdateOptions) (*v1alpha1.Lock, error) {
	pass(c.latency)
	defer pass(c.answerTime)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case rules.IsStripped(object):
		return nil, apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Lock").GroupKind(), object.Name, nil)
	case c.current == nil:
		return nil, apierrors.NewNotFound(v1alpha1.Resource("locks"), object.Name)
	case object.ResourceVersion != c.current.ResourceVersion:
		c.refused++
		return nil, apierrors.NewConflict(v1alpha1.Resource("locks"), object.Name, errors.New("changed"))
	}
	return c.store(object), nil
}

func (c *cluster) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1alpha1.Lock, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("locks"), name)
	}
	return c.current, nil
}

// pass lets time of the bubble pass.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // steps the clock of the bubble
}

// view is what a replica publishes; another one differs.
type view string

// Digest implements [heartbeat.Digests].
func (v view) Digest() string { return string(v) }

// Compare implements [heartbeat.Digests].
func (v view) Compare(heartbeat *v1alpha1.Lock) digest.Verdict {
	if heartbeat.Annotations[v1alpha1.DigestAnnotation] == string(v) {
		return digest.Agrees
	}
	return digest.Differs
}

// start runs the heartbeat of one replica until it is stopped.
func (c *cluster) start(t *testing.T) (stop func()) {
	t.Helper()
	return c.startWith(t, nil)
}

func (c *cluster) startWith(t *testing.T, digests heartbeat.Digests) (stop func()) {
	t.Helper()
	replica, err := heartbeat.New(heartbeat.Options{
		Namespace: "forrst-system", Holder: "operator", Objects: c, Locks: locks{cluster: c}, Informer: c,
		Digests: digests, Limits: rules.DefaultLimits(), Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- replica.Start(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// gaps returns the pauses between the writes.
func (c *cluster) gaps() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var gaps []time.Duration
	for i := range c.written[1:] {
		gaps = append(gaps, c.written[i+1].Sub(c.written[i]))
	}
	return gaps
}

// inVain returns how many writes were too late.
func (c *cluster) inVain() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

func TestTheReplicasTogetherRenewTheLockOnceAPeriod(t *testing.T) {
	for _, latency := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
		t.Run(latency.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{latency: latency}
				for range 3 {
					t.Cleanup(c.start(t))
				}
				pass(3 * time.Second) // All begin at once, and those that were second may write in vain.
				begun := c.inVain()
				pass(time.Minute - 3*time.Second)
				gaps, inVain := c.gaps(), c.inVain()-begun
				if len(gaps) < 66 || len(gaps) > 80 || slices.Max(gaps) > engine.DefaultMaxWatchSilence || inVain > 0 {
					t.Errorf("%d renewals in a minute, %v apart at most, and %d in vain", len(gaps), slices.Max(gaps), inVain)
				}
			})
		})
	}
}

func TestAnAnnotationOfAUserStaysAndDoesNotStopTheHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{latency: 10 * time.Millisecond}
		for range 2 {
			t.Cleanup(c.start(t))
		}
		pass(10 * time.Second)
		c.mu.Lock()
		noted := c.current.DeepCopy()
		noted.Annotations = map[string]string{"example.com/note": "leave it alone"}
		c.store(noted)
		before := len(c.written)
		c.mu.Unlock()
		pass(10 * time.Second)
		c.mu.Lock()
		note, renewals := c.current.Annotations["example.com/note"], len(c.written)-before
		c.mu.Unlock()
		if gaps := c.gaps(); renewals < 8 || slices.Max(gaps) > engine.DefaultMaxWatchSilence || note != "leave it alone" {
			t.Errorf("%d renewals, pauses of up to %v, and the note %q", renewals, slices.Max(gaps), note)
		}
	})
}

func TestAnotherReplicaGoesOnWithoutAPauseThatWouldBeNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{latency: 10 * time.Millisecond}
		first := c.start(t)
		pass(10 * time.Second)
		defer c.start(t)()
		pass(5*time.Second + 500*time.Millisecond)
		first()
		pass(10 * time.Second)
		if gaps := c.gaps(); len(gaps) < 30 || slices.Max(gaps) > engine.DefaultMaxWatchSilence {
			t.Errorf("%d renewals in 25 s, %v apart at most", len(gaps), slices.Max(gaps))
		}
	})
}

func TestTheLockIsTakenAnewAfterItWasDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		defer c.start(t)()
		pass(5 * time.Second)
		c.mu.Lock()
		c.current = nil
		c.mu.Unlock()
		pass(5 * time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.current == nil {
			t.Error("there is no heartbeat")
		}
	})
}

func TestAReplicaThatWasShownSomethingElseSaysSoAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{latency: 10 * time.Millisecond}
		for _, shown := range []view{"shown", "shown", "lost"} {
			t.Cleanup(c.startWith(t, shown))
		}
		pass(time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		var latest string
		var unanswered time.Duration
		since := c.written[0]
		for i, said := range c.said {
			unanswered = max(unanswered, c.written[i].Sub(since))
			if said != latest {
				since, latest = c.written[i], said
			}
		}
		if unanswered > 950*time.Millisecond {
			t.Errorf("for %v, no replica has answered", unanswered)
		}
		if most := 3*80 + 3; len(c.written) > most {
			t.Errorf("%d renewals in a minute, want %d at most", len(c.written), most)
		}
	})
}

func TestARenewalHasNoDigestOfAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		stop := c.startWith(t, view("former"))
		pass(5 * time.Second)
		stop()
		defer c.start(t)()
		pass(5 * time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.Contains(c.said, "former") || c.said[len(c.said)-1] != "" {
			t.Errorf("digests %q", c.said)
		}
	})
}

func TestAReplicaGoesOnThoughItsWatchIsFasterThanTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{latency: 10 * time.Millisecond, answerTime: 50 * time.Millisecond}
		for range 3 {
			t.Cleanup(c.start(t))
		}
		pass(time.Minute)
		if gaps := c.gaps(); len(gaps) < 66 || slices.Max(gaps[1:]) > 850*time.Millisecond || c.refused > 0 {
			t.Errorf("%d renewals in a minute, %v apart at most, and %d in vain", len(gaps), slices.Max(gaps[1:]), c.refused)
		}
	})
}

func TestAReplicaAnswersARenewalThatWasFasterThanItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{latency: 10 * time.Millisecond, answerTime: 100 * time.Millisecond}
		defer c.startWith(t, view("shown"))()
		pass(5 * time.Second)
		c.mu.Lock()
		next := c.written[len(c.written)-1].Add(engine.HeartbeatPeriod)
		c.mu.Unlock()
		pass(time.Until(next) - c.latency/2) // Its own is under way.
		c.mu.Lock()
		other := c.current.DeepCopy()
		other.Annotations = map[string]string{v1alpha1.DigestAnnotation: "lost"}
		c.store(other)
		c.mu.Unlock()
		pass(500 * time.Millisecond)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.refused != 1 || c.said[len(c.said)-1] != "shown" {
			t.Errorf("digests %q, and %d renewals in vain", c.said, c.refused)
		}
	})
}
