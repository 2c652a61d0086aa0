// Package lock acquires, renews and releases Locks.
//
// The [Engine] turns each transition into one conditional write to the API
// server: a create under the one name that a full key has, or an update or
// delete that carries the resourceVersion it was decided on. The decisions
// themselves are in package rules.
package lock
