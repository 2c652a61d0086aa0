// Package jobgate starts Jobs when they hold their locks, keeps these locks for as long
// as the Jobs have pods, and stops Jobs that have lost theirs.
//
// Everything that is decided for one lock is decided by one reconciler that handles one
// lock at a time, in passes: each looks at the lock and all Jobs that want it, and does
// what is due. What a pass knows beyond the caches, such as a grant that no informer has
// shown yet, is kept in a slot. After a restart there are no slots; the lock names the
// Job that holds it, which is enough to go on.
//
// Whatever number of Jobs waits for a lock, only the first of them asks the engine for
// it, and the others cost no request.
package jobgate
