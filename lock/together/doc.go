// Package together decides in which order several locks are tried, waited for and given back, so that a caller gets all of
// them or none.
//
// A set of locks is tried in the order of its keys, without waiting. If one lock is held, the set gives back those that it
// has, and waits for that one alone: so it never keeps a lock from others before it can use it. After [FreeRounds] such
// rounds, others may have taken one lock each time that the set got another. It then waits for each lock in the order of
// the keys, and keeps those that it has. Sets that all wait in this order cannot wait for each other in a circle.
package together
