package line

import "testing"

// A home that goes may have granted the lock to a caller that is just leaving it, before or after the stream has ended.
func TestACallerThatLeavesWhileItsStreamEndsIsInDoubt(t *testing.T) {
	for name, leaveAndEnd := range map[string]func(at place, stream *visitOut){
		"it leaves before": func(at place, stream *visitOut) { _ = at.Leave(); stream.end() },
		"it leaves after":  func(at place, stream *visitOut) { stream.end(); _ = at.Leave() },
	} {
		t.Run(name, func(t *testing.T) {
			stream := &visitOut{outbox: newOutbox[question](), asked: map[uint64]recipient{}}
			doubts := 0
			into := newMailbox(func() { doubts++ })
			at := stream.enlist(question{}, into)
			if _, isDue := into.close(); isDue {
				t.Fatal("a lock is being taken")
			}
			leaveAndEnd(at, stream)
			if doubts != 1 {
				t.Errorf("the wait was in doubt %d times", doubts)
			}
		})
	}
}
