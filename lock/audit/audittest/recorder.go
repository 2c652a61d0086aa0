// Package audittest records audit records for tests.
package audittest

import (
	"slices"
	"sync"

	"forrst.dev/lock-operator/lock/audit"
)

// Recorder is an [audit.Sink] that keeps all records. Its zero value is ready for use. Safe for
// concurrent use.
type Recorder struct {
	mu      sync.Mutex
	records []audit.Record
}

// Record implements [audit.Sink].
func (r *Recorder) Record(record audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, record)
}

// Of returns the records of the lock with the name, in the order of arrival.
func (r *Recorder) Of(lock string) []audit.Record {
	return slices.DeleteFunc(r.All(), func(record audit.Record) bool { return record.Lock != lock })
}

// All returns all records, in the order of arrival.
func (r *Recorder) All() []audit.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}
