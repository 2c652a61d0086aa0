package server

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// claims are made of one memory in a bubble.
type claims struct {
	*memory

	served []string
	mu     sync.Mutex
}

// ask claims memory in its own goroutine for a second, and notes the name when it is served.
func (c *claims) ask(t *testing.T, name string, of tenant, bytes int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	go func() {
		defer cancel()
		if err := c.take(ctx, of, bytes); err != nil {
			name = "not " + name
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.served = append(c.served, name)
	}()
	synctest.Wait()
}

// want checks what was served since it was called last, in any order.
func (c *claims) want(t *testing.T, served ...string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.served)
	slices.Sort(served)
	if !slices.Equal(c.served, served) {
		t.Errorf("served %q, want %q", c.served, served)
	}
	c.served = nil
}

var (
	ofA = tenant{namespace: "a"}
	ofB = tenant{namespace: "b"}
)

func inNetwork(address string) tenant {
	return tenant{network: netip.PrefixFrom(netip.MustParseAddr(address), 32)}
}

func TestMemoryGoesToTheNamespaceThatHasLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &claims{memory: newMemory(100)}
		c.ask(t, "a1", ofA, 50)
		c.ask(t, "a2", ofA, 50)
		c.want(t, "a1", "a2")
		c.ask(t, "a3", ofA, 50)
		c.ask(t, "a4", ofA, 50)
		c.ask(t, "b1", ofB, 10)
		c.want(t)
		c.give(ofA, 50)
		c.want(t, "b1")
		c.give(ofA, 50)
		c.want(t, "a3")
		c.give(ofB, 10)
		c.want(t, "a4")
	})
}

func TestMemoryGoesToTheNetworkThatHasLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &claims{memory: newMemory(100)}
		first, second, third := inNetwork("10.0.0.1"), inNetwork("10.0.0.2"), inNetwork("10.0.0.3")
		third.namespace = "a"
		for _, of := range []tenant{first, second} {
			for range 5 {
				c.ask(t, "flood", of, 10)
			}
		}
		c.want(t, slices.Repeat([]string{"flood"}, 10)...)
		for number := range 10 {
			first.namespace = string(rune('a' + number)) // Invented.
			c.ask(t, "more", first, 10)
		}
		c.ask(t, "third", third, 10)
		first.namespace = ""
		c.give(first, 10)
		c.want(t, "third")
	})
}

// The half that one network gets is no obstacle for others.
func TestANetworkAtItsShareKeepsNoOtherWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &claims{memory: newMemory(100)}
		c.ask(t, "first", inNetwork("10.0.0.1"), 50)
		c.ask(t, "first again", inNetwork("10.0.0.1"), 1)
		c.ask(t, "second", inNetwork("10.0.0.2"), 50)
		c.want(t, "first", "second")
		time.Sleep(time.Second) //nolint:forbidigo // Only the fake clock moves.
		c.want(t, "not first again")
	})
}

func TestALargeClaimIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &claims{memory: newMemory(100)}
		c.ask(t, "a1", ofA, 60)
		c.ask(t, "b1", ofB, 80)
		c.ask(t, "a2", ofA, 30)
		c.want(t, "a1")
		c.give(ofA, 60)
		c.want(t, "b1") // Though a2 would have less with its claim.
		c.give(ofB, 80)
		c.want(t, "a2")
	})
}

// Two namespaces with small claims all the time must not starve a third one with a large claim.
func TestSmallClaimsDoNotStarveALargeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &claims{memory: newMemory(192)}
		ofC := tenant{namespace: "c"}
		for range 6 {
			c.ask(t, "small", ofA, 10)
			c.ask(t, "small", ofB, 10)
		}
		c.want(t, slices.Repeat([]string{"small"}, 12)...)
		c.ask(t, "large", ofC, 80)
		c.ask(t, "small again", ofA, 10)
		c.ask(t, "small again", ofB, 10)
		c.give(ofA, 10)
		c.want(t, "large")
		c.give(ofB, 10)
		c.give(ofB, 10)
		c.want(t, "small again", "small again")
	})
}

// A namespace keeps a turn for one claim at a time: with more of them it is overtaken.
func TestANamespaceKeepsNoTurnBesideAsMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &claims{memory: newMemory(100)}
		c.ask(t, "a1", ofA, 80)
		c.ask(t, "a2", ofA, 80)
		c.ask(t, "b1", ofB, 10)
		c.want(t, "a1", "b1")
		c.give(ofB, 10)
		c.give(ofA, 80)
		c.want(t, "a2")
	})
}

func TestAClaimThatGivesUpKeepsNoOtherWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &claims{memory: newMemory(100)}
		c.ask(t, "a1", ofA, 60)
		c.ask(t, "b1", ofB, 70)
		time.Sleep(time.Second / 2) //nolint:forbidigo // Only the fake clock moves.
		c.ask(t, "a2", ofA, 30)
		c.want(t, "a1")
		time.Sleep(time.Second / 2) //nolint:forbidigo // Only the fake clock moves.
		c.want(t, "not b1", "a2")
		c.give(ofA, 90)
		if c.left != 100 || len(c.ofTenants) > 0 || len(c.ofNetworks) > 0 || len(c.waiting) > 0 {
			t.Errorf("%d bytes are left, %v are taken, %d claims wait", c.left, c.ofTenants, len(c.waiting))
		}
	})
}
