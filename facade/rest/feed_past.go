package rest

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock/problems"
)

const (
	// keptOfLock bounds the grants of one lock that a feed keeps after their ends.
	keptOfLock = 8
	// maxPastOfFeed bounds what the grants take in one feed, and maxPastBytes in all feeds: a part of [MaxKeptBytes].
	maxPastOfFeed = 512 << 10
	maxPastBytes  = 1 << 20
	// pastOverhead is what one takes besides its text.
	pastOverhead = 256
)

// past is the last grants that have ended while a feed followed the locks, for viewers who come later. A viewer is sent
// copies of their texts part by part, so one that does not read does not keep them. It needs the mutex of its feed.
type past struct {
	// kept counts the bytes of all feeds.
	kept *atomic.Int64
	// since is from when on every end is here, but for what one lock has too many of.
	since time.Time
	// grants are in the order in which their ends were seen, and next is the number of the next one.
	grants []pastGrant
	next   int
	ofLock map[types.NamespacedName]int
	bytes  int64
}

type pastGrant struct {
	number  int
	lock    types.NamespacedName
	endedAt time.Time
	// text is that of a [wire.PastGrant].
	text []byte
}

func (g *pastGrant) size() int64 { return int64(len(g.text)) + pastOverhead }

// begin forgets everything: what has ended before is not known.
func (p *past) begin(kept *atomic.Int64, now time.Time) {
	p.forget()
	*p = past{kept: kept, since: now, ofLock: map[types.NamespacedName]int{}}
}

// remember keeps the grants that events have ended.
func (p *past) remember(events []event, now time.Time) {
	for i := range events {
		if grant, at := events[i].ended(now); grant != nil {
			text := encode(wire.PastGrant{Event: events[i].name, EndedAt: problems.FormatTime(at), Lock: describe(grant)})
			p.add(pastGrant{lock: nameOf(grant), endedAt: at, text: text})
		}
	}
}

// add forgets the oldest grants where there is no room for one more.
func (p *past) add(added pastGrant) {
	size := added.size()
	if p.ofLock[added.lock] >= keptOfLock {
		p.remove(slices.IndexFunc(p.grants, func(each pastGrant) bool { return each.lock == added.lock }))
	}
	isFull := func() bool { return p.bytes+size > maxPastOfFeed || p.kept.Load()+size > maxPastBytes }
	for len(p.grants) > 0 && isFull() {
		p.since = p.grants[0].endedAt
		p.remove(0)
	}
	if isFull() {
		p.since = added.endedAt
		return
	}
	added.number = p.next
	p.next++
	p.grants = append(p.grants, added)
	p.ofLock[added.lock]++
	p.bytes += size
	p.kept.Add(size)
}

func (p *past) remove(index int) {
	removed := &p.grants[index]
	p.bytes -= removed.size()
	p.kept.Add(-removed.size())
	p.ofLock[removed.lock]--
	if p.ofLock[removed.lock] == 0 {
		delete(p.ofLock, removed.lock)
	}
	p.grants = slices.Delete(p.grants, index, index+1)
}

func (p *past) forget() {
	if p.bytes > 0 {
		p.kept.Add(-p.bytes)
	}
	*p = past{since: p.since, next: p.next}
}

// textOf returns a [wire.Past] as it is sent, of the grants with a number from the one up to, but without, the other, as
// far as one text has room, and the number to go on from. The text is nil if there are none.
func (p *past) textOf(from, end int) (text []byte, next int) {
	first, _ := slices.BinarySearchFunc(p.grants, from, func(each pastGrant, number int) int { return cmp.Compare(each.number, number) })
	for _, each := range p.grants[first:] {
		if each.number >= end {
			break
		}
		switch {
		case text == nil:
			text = append(text, "event: "+wire.EventPast+"\ndata: {\"since\":\""+problems.FormatTime(p.since)+"\",\"grants\":["...)
		case len(text) >= maxBatchBytes:
			return append(text, "]}\n\n"...), each.number
		default:
			text = append(text, ',')
		}
		text = append(text, each.text...)
	}
	if text != nil {
		text = append(text, "]}\n\n"...)
	}
	return text, end
}
