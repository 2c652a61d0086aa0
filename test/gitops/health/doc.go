// Package health tests what Argo CD and Flux make of a Lock, with the interpreter and
// the libraries that they are built from.
package health
