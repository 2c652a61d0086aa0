// Package holderref handles the objects that locks are held for. It checks that a reference names
// an object, tells whether the object has ended, and returns the Pod of a caller.
package holderref
