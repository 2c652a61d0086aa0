// Package together acquires several locks, or none of them: the order of the tries and waits, for all who make them.
//
// A set is tried in the order of its keys, without waiting. If one lock is held, those that the set has are given back,
// and the set waits for that one alone, so it keeps from nobody what it cannot use yet. After [FreeRounds] such rounds it
// waits in the order of the keys instead, and keeps what it has: sets that wait in one order never wait for each other in
// a circle, and a set that always finds another lock held would never be complete otherwise.
package together
