package audit

// Sink takes records. Implementations are safe for concurrent use, return at once, and handle
// their own failures: a lock never waits for its audit or fails with it.
type Sink interface {
	// Record takes one record.
	Record(record Record)
}

// Nowhere is the Sink that drops all records.
type Nowhere struct{}

// Record implements [Sink].
func (Nowhere) Record(Record) {}

// OrNowhere returns the sink, or [Nowhere] instead of nil.
func OrNowhere(sink Sink) Sink {
	if sink == nil {
		return Nowhere{}
	}
	return sink
}
