// Package audittest lets tests see what was recorded.
package audittest

import (
	"slices"
	"sync"

	"forrst.dev/lock-operator/lock/audit"
)

// Recorder is an [audit.Sink] that keeps what it is given. Its zero value is ready for
// use. Safe for concurrent use.
type Recorder struct {
	mu      sync.Mutex
	records []audit.Record
	lost    int
}

// Record implements [audit.Sink].
func (r *Recorder) Record(record audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, record)
}

// Lost implements [audit.Sink].
func (r *Recorder) Lost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost++
}

// Losses returns how many records could not be made.
func (r *Recorder) Losses() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// Of returns the records about the lock with the name, in the order in which they came.
func (r *Recorder) Of(lock string) []audit.Record {
	return slices.DeleteFunc(r.All(), func(record audit.Record) bool { return record.Lock != lock })
}

// All returns all records, in the order in which they came.
func (r *Recorder) All() []audit.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}
