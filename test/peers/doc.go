// Package peers runs the test suites of other lock libraries over adapters that use our locks, on each backend. A suite
// comes from the module proxy by its version. What the adapter replaces is cut out of a copy of its library.
package peers
