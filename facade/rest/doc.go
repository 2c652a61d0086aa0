// Package rest is the door of the façade for programs that lock by plain HTTP: a lock is a resource
// that POST acquires, PUT renews, DELETE releases and GET reads. Its document, openapi.yaml, is the
// contract; docs/rest.md explains it.
//
// It does nothing about locks itself: package facade/locks does, for this door as for the others. The
// door reads requests, makes lock tokens, and words answers.
package rest
