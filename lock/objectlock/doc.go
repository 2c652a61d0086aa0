// Package objectlock locks Kubernetes objects. [Acquire] takes the lock of an object and
// reads it, and returns a [Locked] as the proof; a [Writer] updates, patches and deletes
// only objects for which it is given one, each time on the condition that the object has
// not changed since.
package objectlock
