//go:build !race

// The race detector takes twenty times as long, so "make test" runs this once more without it.

package line_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"forrst.dev/lock-operator/lock"
)

const (
	// chaosSeeds is how many runs there are. LINE_SEEDS sets another number, and LINE_SEED the first.
	chaosSeeds = 30
	// chaosLength is how long the callers of a run come, and chaosCallers how many there are.
	chaosLength   = time.Minute
	chaosCallers  = 12
	chaosReplicas = 3
	// calmOneIn is for how many runs there is one in which nothing fails, which is as much shorter.
	calmOneIn = 5
	// oneIn is how often a write is not answered.
	oneIn = 30
	// mortalTTL is that of locks whose replicas may die: such a lock may be held until then. MistimedTTL is less than by
	// how much clocks are wrong.
	mortalTTL, mistimedTTL = 10 * time.Second, 20 * time.Second
)

// Whatever becomes of replicas, of the ways between them, of their clocks and of their writes: a lock has one holder,
// who holds it until it releases it, no grant is left behind, and no caller waits for long beside a lock that is free.
func TestChaos(t *testing.T) {
	first := numberOf(t, "LINE_SEED", 1)
	for seed := first; seed < first+numberOf(t, "LINE_SEEDS", chaosSeeds); seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newChaos(t, seed, false).run() })
		})
	}
}

// Where nothing fails, callers that wait get the lock in the order in which they came, and none waits beside a lock that is
// free.
func TestChaosOfCallersAlone(t *testing.T) {
	first := numberOf(t, "LINE_SEED", 1)
	for seed := first; seed < first+numberOf(t, "LINE_SEEDS", chaosSeeds)/calmOneIn; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newChaos(t, seed, true).run() })
		})
	}
}

func numberOf(t *testing.T, name string, fallback int) int {
	t.Helper()
	given, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(fallback)))
	if err != nil {
		t.Fatal(err)
	}
	return given
}

// chaos is one run.
type chaos struct {
	*replicas
	// present are the replicas that there are now, and delays by how much their watches are behind.
	present [chaosReplicas]atomic.Pointer[replica]
	delays  []time.Duration
	// ending are those that end.
	ending sync.WaitGroup
	until  time.Time
	ttl    time.Duration
	// isNamed says that each caller uses its owner token again, isMistimed that clocks are wrong, isMortal that replicas
	// end, and isUnsure that writes are not answered. IsCalm says that nothing fails. HasGuest says that the last replica is
	// no member.
	isNamed, isMistimed, isMortal, isUnsure, isCalm, hasGuest bool
	*judge

	mu     sync.Mutex
	random *rand.Rand
}

func newChaos(t *testing.T, seed int, isCalm bool) *chaos {
	t.Helper()
	c := &chaos{
		replicas: &replicas{t: t, etcd: newEtcd(), began: time.Now(), all: map[string]*replica{}, clocks: map[string]*machineClock{}},
		delays:   []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond},
		isUnsure: seed%2 == 1, isMistimed: seed/2%2 == 1, isMortal: seed/4%2 == 1, isNamed: seed%5 == 4, hasGuest: seed%4 == 2, ttl: time.Hour,
		random: rand.New(rand.NewPCG(uint64(seed), 1)),
	}
	if c.isCalm = isCalm; isCalm { // A caller of a name takes its place up again.
		c.isUnsure, c.isMistimed, c.isMortal, c.isNamed = false, false, false, false
	}
	if seed%3 == 1 {
		c.delays = []time.Duration{time.Millisecond, 800 * time.Millisecond, 50 * time.Millisecond}
	}
	switch {
	case c.isMistimed:
		c.ttl = mistimedTTL
	case c.isMortal:
		c.ttl = mortalTTL
	}
	for number := range chaosReplicas {
		c.clocks[nameOfReplica(number)] = newMachineClock()
		c.add(nameOfReplica(number), c.delays[number])
		c.present[number].Store(c.all[nameOfReplica(number)])
	}
	c.until = time.Now().Add(chaosLength)
	if c.isCalm {
		c.until = time.Now().Add(chaosLength / calmOneIn)
	}
	c.judge = newJudge(c.replicas, c.isMistimed, c.isNamed && c.isMortal)
	switch {
	case c.isCalm:
		c.maxAsleep = maxAsleepCalm
	case !c.isMortal && !c.isMistimed:
		c.maxAsleep = maxAsleepAlive
	}
	for number := range chaosReplicas {
		c.join(number)
	}
	<-time.After(time.Second)
	return c
}

func nameOfReplica(number int) string { return fmt.Sprint("replica-", number) }

// members are the names of the replicas that are members.
func (c *chaos) members() []string {
	if names := c.names(); c.hasGuest {
		return names[:chaosReplicas-1]
	}
	return c.names()
}

func (c *chaos) at(number int) *replica { return c.present[number].Load() }

// anywhere is one of the replicas.
func (c *chaos) anywhere() *replica { return c.at(c.number(chaosReplicas)) }

// fate is that of the next write.
func (c *chaos) fate() fate {
	if c.isUnsure && time.Now().Before(c.until) && c.number(oneIn) == 0 {
		return fate(c.number(int(fateCount)))
	}
	return answered
}

func (c *chaos) run() {
	var all sync.WaitGroup
	for i := range chaosCallers {
		all.Go(func() {
			for time.Now().Before(c.until) {
				c.call(i)
			}
		})
	}
	if !c.isCalm {
		all.Go(c.breakThings)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { c.watchProgress(ctx) })
	all.Wait()
	cancel()
	watching.Wait()
	c.ending.Wait()
	<-time.After(3 * time.Minute)
	c.judge.end()
	for name, at := range c.all {
		if asked, standing := at.Open(); asked+standing > 0 || at.HasWaiters() {
			c.t.Errorf("%s: %d questions are open, and %d callers stand in line", name, asked, standing)
		}
	}
}

// call acquires the lock, holds it and releases it. Its caller may leave, or wait for a while alone.
func (c *chaos) call(caller int) {
	owner := uuid.NewString()
	if c.isNamed {
		owner = fmt.Sprint("name-", caller)
	}
	ctx, leave := context.WithCancel(c.t.Context())
	if c.number(4) == 0 {
		time.AfterFunc(c.upTo(3*time.Second), leave)
	}
	waits := []time.Duration{time.Hour, 300 * time.Millisecond, 3 * time.Second, 0}
	request, at := by(owner, waits[c.number(len(waits))]), c.anywhere()
	request.TTL = c.ttl
	came := time.Now()
	c.comes(caller, owner, at)
	granted, err := at.Acquire(ctx, "default", request)
	leave()
	c.goes(caller)
	if err != nil || at.isKilled.Load() {
		<-time.After(c.upTo(50 * time.Millisecond))
		return
	}
	if c.isCalm && request.Wait > 0 {
		c.passesNone(caller, came)
	}
	held := c.told(granted, c.ttl)
	<-time.After(c.upTo(30 * time.Millisecond))
	for range c.number(3) {
		c.renew(&held)
	}
	c.giveUp(held)
}

// renew renews the lock, maybe for less long.
func (c *chaos) renew(of *held) {
	ttl, at, sent := []time.Duration{c.ttl / 2, c.ttl}[c.number(2)], c.anywhere(), time.Now()
	renewed, err := at.Renew(c.t.Context(), "default", key, lock.Proof{Owner: of.owner}, ttl)
	switch {
	case at.isKilled.Load(), errors.Is(err, lock.ErrUnavailable):
		c.mayBeRenewed(of, sent.Add(ttl))
	case err != nil:
		c.refused(of, err)
	default:
		c.renewed(of, renewed, sent, ttl)
	}
}

// giveUp releases the lock, until the answer says that it is over.
func (c *chaos) giveUp(of held) {
	c.gives(of)
	for {
		at := c.anywhere()
		err := at.Release(c.t.Context(), "default", key, lock.Proof{Owner: of.owner})
		if !at.isKilled.Load() && (err == nil || errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch)) {
			c.released(of, err)
			return
		}
		<-time.After(100 * time.Millisecond)
	}
}

func (c *chaos) number(below int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(below)
}

func (c *chaos) upTo(most time.Duration) time.Duration {
	return time.Duration(c.number(int(most/time.Millisecond))) * time.Millisecond
}
