// Package audit says what becomes of locks, in one [Record] for each fact: every grant
// has one record that begins it and one that ends it.
//
// A take-over and a hand-off are two facts in one write: one grant ends, another
// begins. So each makes two records.
//
// The writer of a change to the API server makes its records, from what it found to have
// happened. docs/audit.md describes the records.
package audit
