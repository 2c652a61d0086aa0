// Package problems has the problem documents (RFC 9457) that locks are refused with over HTTP: by the
// REST door of the façade and by package lock/lockhttp.
package problems
