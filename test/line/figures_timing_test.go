//go:build timing

package line_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

const (
	// waiters wait for one lock; they are spread over the replicas.
	waiters = 300
	// closeBy is less than how far apart two callers have come who are served in another order.
	closeBy = 5 * time.Millisecond
	// punctual is by how much the way of a call to its place in line may differ from that of most calls to its replica.
	// One that differs by more shows that this machine was busy, and nothing about the line.
	punctual = time.Millisecond
	// mostOf is which part of the callers must have been punctual. Otherwise they come again, contests times at most.
	mostOf   = 0.6
	contests = 8
	// runs is how often the same is measured.
	runs = 3
)

// arrival is that of a caller who has got the lock.
type arrival struct {
	waiter int
	// sent is when its call was sent, and since when it stands in line by the clock of the home.
	sent, since time.Time
	// isPunctual says that its way was as long as that of most.
	isPunctual bool
}

var _ = Describe("Many who wait at three replicas", Label("timing"), func() {
	It("are served in their order, by one write each", func(ctx context.Context) {
		installed := install(ctx, 3)
		for run := range runs {
			served := installed.contend(ctx, fmt.Sprintf("run-%d", run))
			Expect(float64(served.requests.writes) / waiters).To(And(BeNumerically(">=", 1), BeNumerically("<=", 1.02)))
			Expect(served.requests.reads).To(BeNumerically("<=", 1), "the head reads its lock every five seconds")
		}
	})

	It("are served in their order also at a replica whose informer is behind", func(ctx context.Context) {
		installed := install(ctx, 2)
		installed.lag = behind
		installed.start(ctx)
		installed.meet(ctx)
		// The one that is behind is home to some of the lines, and not to others.
		for run := range 2 * runs {
			installed.contend(ctx, fmt.Sprintf("run-%d", run))
		}
	})
})

// contention is how a crowd got a lock, one after the other.
type contention struct {
	order    []arrival
	requests requests
	// punctual are the callers whose ways were as long as those of most.
	punctual int
}

// contend has callers come while the lock is held, and then pass it on. Their order must be that in which they came. If
// this machine was too busy to tell that, others come.
func (i *installation) contend(ctx context.Context, key string) contention {
	GinkgoHelper()
	for contest := 1; ; contest++ {
		served := i.contest(ctx, fmt.Sprintf("%s-%d", key, contest))
		if contest < contests && float64(served.punctual) < mostOf*waiters {
			continue
		}
		Expect(float64(served.punctual)/waiters).To(BeNumerically(">=", mostOf), "of the callers came punctually")
		Expect(served.disorder()).To(BeNumerically("<", closeBy))
		return served
	}
}

func (i *installation) contest(ctx context.Context, key string) contention {
	GinkgoHelper()
	namespace := environment.Namespace(ctx, "line-")
	environment.AllowWorkers(ctx, namespace)
	token := tokenOf(ctx, namespace, fixture.Worker, audience)
	callers := make([]*lock.Client, len(i.all))
	for index, at := range i.all {
		callers[index] = i.callerOver2(ctx, at, namespace, token)
	}
	first, err := callers[0].Acquire(ctx, key, lock.WithTTL(10*time.Minute), lock.WithoutRenewal())
	Expect(err).NotTo(HaveOccurred())
	var mu sync.Mutex
	var served contention
	var all sync.WaitGroup
	began := time.Now().Add(100 * time.Millisecond)
	for waiter := range waiters {
		all.Go(func() {
			defer GinkgoRecover()
			<-time.After(time.Until(began.Add(time.Duration(waiter) * every)))
			came := arrival{waiter: waiter, sent: time.Now()}
			held, err := callers[waiter%len(callers)].Acquire(ctx, key, lock.WithTTL(10*time.Minute), lock.WithoutRenewal(), lock.WithReason(strconv.Itoa(waiter)))
			Expect(err).NotTo(HaveOccurred())
			mu.Lock()
			served.order = append(served.order, came)
			mu.Unlock()
			Expect(held.Release(ctx)).To(Succeed())
		})
	}
	i.awaitWaiters(ctx, i.all[0], namespace, key, token, waiters)
	standing, _, err := i.backendOver2(i.all[0], token).Waiters(ctx, namespace, v1alpha1.FullKeyOf(key), waiters)
	Expect(err).NotTo(HaveOccurred())
	before, released := i.made(), time.Now()
	Expect(first.Release(ctx)).To(Succeed())
	all.Wait()
	took := time.Since(released)
	served.requests = i.made().since(before)
	Expect(served.order).To(HaveLen(waiters))
	Expect(standing).To(HaveLen(waiters))
	for place, waiter := range standing {
		Expect(strconv.Itoa(served.order[place].waiter)).To(Equal(waiter.Reason), "who is served at place %d", place)
		served.order[place].since = waiter.Since
	}
	served.judge(len(callers))
	GinkgoWriter.Printf("%s: %d hand-offs in %s, %.3f writes and %.3f reads each, %d other requests; %d callers punctual, farthest in another order %s\n",
		key, waiters, took.Round(time.Millisecond), float64(served.requests.writes)/waiters, float64(served.requests.reads)/waiters,
		served.requests.others, served.punctual, served.disorder())
	return served
}

// judge tells the callers whose ways were as long as those of most that came to the same replica. What the clocks of the
// replicas are related wrongly by is the same for all of these: so it makes no caller late, and shows as disorder.
func (c *contention) judge(replicas int) {
	way := func(of *arrival) time.Duration { return of.since.Sub(of.sent) }
	ways := make([][]time.Duration, replicas)
	for index := range c.order {
		came := &c.order[index]
		ways[came.waiter%replicas] = append(ways[came.waiter%replicas], way(came))
	}
	for _, of := range ways {
		slices.Sort(of)
	}
	for index := range c.order {
		came := &c.order[index]
		of := ways[came.waiter%replicas]
		if came.isPunctual = (way(came) - of[len(of)/2]).Abs() <= punctual; came.isPunctual {
			c.punctual++
		}
	}
}

// disorder returns how far apart two punctual callers came at most of which the later was served first.
func (c *contention) disorder() (farthest time.Duration) {
	var latest time.Time
	for _, each := range c.order {
		switch {
		case !each.isPunctual:
		case each.sent.After(latest):
			latest = each.sent
		default:
			farthest = max(farthest, latest.Sub(each.sent))
		}
	}
	return farthest
}
