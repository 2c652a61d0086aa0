// Package limits bounds what the façade does at a time: calls that run, calls that wait for
// locks, and bytes of request bodies. All doors share one set of limits; it knows no protocol.
package limits
