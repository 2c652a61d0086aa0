// Package holderref deals with the objects that locks are held for: whether a reference
// names one, whether it has ended, and which Pod a caller is.
package holderref
