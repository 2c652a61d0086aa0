// Package routes finds the service that a function runs in.
//
// A [Table] maps names of functions to routes. A [File] is a table that follows a file of
// YAML.
package routes
