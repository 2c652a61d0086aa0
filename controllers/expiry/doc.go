// Package expiry deletes locks that have expired.
package expiry
