// Package routes finds the service that a function runs in, and calls it.
//
// A [Table] maps names of functions to routes. A [File] is a table that follows a file of
// YAML. A [Client] calls what a route leads to, and tells apart whether a call that failed
// may still be at work.
package routes
