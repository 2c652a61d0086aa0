package leadership

import (
	"context"
	"testing"
)

func TestLeadership(t *testing.T) {
	leadership := &Election{}
	early := leadership.Gained()
	if leadership.IsLeader() || len(early) != 0 {
		t.Error("leads before the election")
	}
	leadership.gain(t.Context())
	late := leadership.Gained()
	if !leadership.IsLeader() || len(early) != 1 || len(late) != 1 {
		t.Error("not every subscriber learnt that the leadership was gained")
	}
	leadership.gain(t.Context()) // No subscriber has read it; it must not block.
	leadership.lose()
	if leadership.IsLeader() {
		t.Error("leads after the loss")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	leadership.gain(over)
	if leadership.IsLeader() {
		t.Error("a gain that came after its own loss counts")
	}
}
