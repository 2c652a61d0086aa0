// Package locks does what callers ask of locks, once for every door of the façade. It knows
// no protocol; its errors are those of packages lock and limits.
package locks
