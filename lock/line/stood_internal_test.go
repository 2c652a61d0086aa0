package line

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"k8s.io/utils/clock"
)

// heard is a stream that brings answers, each after its time.
type heard struct {
	grpc.ClientStream
	answers []answer
	after   []time.Duration
}

func (h *heard) RecvMsg(into any) error {
	if len(h.answers) == 0 {
		return io.EOF
	}
	time.Sleep(h.after[0]) //nolint:forbidigo // steps the clock of the bubble
	*into.(*answer) = h.answers[0]
	h.answers, h.after = h.answers[1:], h.after[1:]
	return nil
}

// listenTo returns a stream of a peer to which the answers have come.
func listenTo(stream *heard, into *mailbox) (used int, asked []question) {
	p := &peer{timers: clock.RealClock{}}
	out := &visitOut{outbox: newOutbox[question](), timers: p.timers, asked: map[uint64]recipient{1: {into: into}}}
	p.changed = func() {
		if p.stream != nil {
			used = len(stream.answers)
		}
	}
	used = -1
	_ = p.listen(stream, out, newPulse(p.timers)) // It ends with the stream.
	return used, out.outbox.pending
}

// The first message of a stream may wait for its connection, and places are related by the quickest.
func TestAStreamIsUsedAfterSomePings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := &heard{after: make([]time.Duration, firstPings+1)}
		for range stream.after {
			stream.answers = append(stream.answers, answer{Result: pong})
		}
		left, asked := listenTo(stream, nil)
		if left != 1 {
			t.Errorf("used with %d answers left, want 1", left)
		}
		if len(asked) != firstPings-1 {
			t.Errorf("asked %d times at once, want %d", len(asked), firstPings-1)
		}
	})
}

func TestALateAnswerTellsAPlaceExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, into := time.Now(), newMailbox(nil)
		listenTo(&heard{
			answers: []answer{{Result: pong, Sent: time.Hour}, {ID: 1, Result: placed, Sent: time.Hour + time.Second, Stood: time.Hour - time.Minute}},
			after:   []time.Duration{0, 3 * time.Second}, // two of which it was under way
		}, into)
		if stood, _ := into.placed(); stood.Sub(began) != -time.Minute {
			t.Errorf("stood since %v, want a minute before", stood.Sub(began))
		}
	})
}
