package rest

import (
	"sync"

	"forrst.dev/lock-operator/facade/limits"
)

// Limits of the streams of namespaces of one replica. Each may have to send thousands of locks, and
// follows every change to them, where a caller that waits and a stream of one lock keep next to nothing.
const (
	maxStreams          = 1000
	maxStreamsPerCaller = 100
)

var (
	errCallerStreams = &limits.Error{IsCaller: true, Limit: "streams_per_caller", Reason: "The caller has too many streams of namespaces"}
	errStreams       = &limits.Error{Limit: "streams", Reason: "The lock service has too many streams of namespaces"}
)

// streamCounts counts the streams of namespaces. It is safe for concurrent use.
type streamCounts struct {
	mu    sync.Mutex
	total int
	// callers are those that have streams.
	callers map[limits.Caller]int
}

// begin counts a stream until end is called, or returns the [*limits.Error] that refuses it.
func (s *streamCounts) begin(caller limits.Caller) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.callers[caller] >= maxStreamsPerCaller:
		return nil, errCallerStreams
	case s.total >= maxStreams:
		return nil, errStreams
	}
	s.total++
	s.callers[caller]++
	return func() { s.end(caller) }, nil
}

func (s *streamCounts) end(caller limits.Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	s.callers[caller]--
	if s.callers[caller] == 0 {
		delete(s.callers, caller)
	}
}
