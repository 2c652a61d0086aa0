// Package objectlock locks Kubernetes objects. [Acquire] takes the lock of an object, reads the
// object and returns a [Locked] as the proof. A [Writer] updates, patches and deletes an object
// only with its Locked, and only if the object has not changed since it was read.
package objectlock
