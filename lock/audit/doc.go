// Package audit records what happens to locks, in one [Record] for each fact: every grant has one
// record that begins it and one that ends it.
//
// A take-over and a hand-off end one grant and begin another in one write; each makes two records.
//
// The component that writes to the API server makes the records of its writes, and admission those of the
// writes of others, when it lets them pass. docs/audit.md describes the records.
package audit
