// Package jobgate starts Jobs when they hold their locks, keeps these locks for as long
// as the Jobs have pods, and stops Jobs that have lost theirs.
//
// One reconciler decides everything about a lock, in passes, one at a time for each lock: a
// pass reads the lock and all Jobs that want it, and does what is due. What is known beyond
// the caches, such as a grant that no informer has shown yet, is kept in a lockState. It is
// lost with a restart: the lock names the Job that holds it, which is enough to continue.
//
// Only the first of the waiting Jobs asks the engine for the lock. The others cost no
// request.
package jobgate
