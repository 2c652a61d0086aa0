// Package access finds out who calls, what they may do, and in which namespace, for every
// door of the façade. It knows no protocol above HTTP; its errors are those of package lock.
package access
