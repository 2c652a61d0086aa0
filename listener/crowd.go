package listener

import (
	"container/list"
	"net/netip"
)

// Crowd has members by the networks that they are in, and tells which of them makes room for another. The zero value has
// none. It is not safe for concurrent use.
type Crowd[M any] struct {
	networks map[netip.Prefix]*list.List
	size     int
	// joined counts all that ever joined.
	joined uint64
}

// place is that of a member in its network.
type place[M any] struct {
	member M
	// number tells which of two members has joined first.
	number uint64
}

// Len returns how many members there are.
func (c *Crowd[M]) Len() int { return c.size }

// Of returns how many of them are in the network.
func (c *Crowd[M]) Of(network netip.Prefix) int {
	if members := c.networks[network]; members != nil {
		return members.Len()
	}
	return 0
}

// Join adds a member as the newest one. Calling leave again changes nothing.
func (c *Crowd[M]) Join(network netip.Prefix, member M) (leave func()) {
	members := c.networks[network]
	if members == nil {
		if c.networks == nil {
			c.networks = map[netip.Prefix]*list.List{}
		}
		members = list.New()
		c.networks[network] = members
	}
	c.size++
	c.joined++
	element := members.PushBack(place[M]{member, c.joined})
	isGone := false
	return func() {
		if isGone {
			return
		}
		isGone = true
		members.Remove(element)
		c.size--
		if members.Len() == 0 {
			delete(c.networks, network)
		}
	}
}

// OldestOf returns the oldest member of the network. ok is false if it has none.
func (c *Crowd[M]) OldestOf(network netip.Prefix) (oldest M, ok bool) {
	if members := c.networks[network]; members != nil {
		return oldestOf[M](members).member, true
	}
	return oldest, false
}

// Leaver returns the member that makes room for another one of the network: the oldest of the network with most, counting the
// new one; of several of these, the oldest of all. ok is false if each network has fewer than this one would have.
func (c *Crowd[M]) Leaver(network netip.Prefix) (leaver M, ok bool) {
	most := c.Of(network) + 1
	var found place[M]
	for of, members := range c.networks {
		count, oldest := members.Len(), oldestOf[M](members)
		if of == network {
			count++
		}
		if count > most || count == most && (!ok || oldest.number < found.number) {
			found, most, ok = oldest, count, true
		}
	}
	return found.member, ok
}

func oldestOf[M any](members *list.List) place[M] {
	oldest, _ := members.Front().Value.(place[M])
	return oldest
}
