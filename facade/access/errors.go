package access

import (
	"fmt"

	"forrst.dev/lock-operator/lock"
)

// ForbiddenError says which right the caller lacks. It matches [lock.ErrForbidden].
type ForbiddenError struct {
	// Verb, Resource and Namespace name the right, in the terms of a Role. The resource has its
	// API group, as in "locks.forrst.dev".
	Verb, Resource, Namespace string
	// Err is what [Access] returned.
	Err error
}

// Error implements error.
func (e *ForbiddenError) Error() string { return e.Err.Error() }

// Unwrap implements the interface of [errors.Is].
func (e *ForbiddenError) Unwrap() error { return e.Err }

// NamespaceFault is what is wrong with the namespaces that a request names.
type NamespaceFault int

const (
	// NamespaceMissing means that the request must name a namespace, and does not.
	NamespaceMissing NamespaceFault = iota
	// NamespaceInvalid means that a name is not one of a namespace.
	NamespaceInvalid
	// NamespacesDiffer means that the request names two namespaces.
	NamespacesDiffer
	// NamespaceNotServed means that only another namespace is served.
	NamespaceNotServed
)

// NamespaceError says what is wrong with the namespaces that a request names. It matches
// [lock.ErrInvalid]. Doors word it, since they know where a request names them.
type NamespaceError struct {
	Fault NamespaceFault
	// Name is the namespace at fault; the one that is served if Fault is
	// [NamespaceNotServed].
	Name string
	// First is the other namespace if Fault is [NamespacesDiffer].
	First string
	// Rule is the rule that an invalid name breaks.
	Rule string
}

// Error implements error.
func (e *NamespaceError) Error() string {
	switch e.Fault {
	case NamespaceInvalid:
		return fmt.Sprintf("%q is not the name of a namespace: %s", e.Name, e.Rule)
	case NamespacesDiffer:
		return fmt.Sprintf("the request names different namespaces, %q and %q", e.First, e.Name)
	case NamespaceNotServed:
		return fmt.Sprintf("no namespace but %q is served", e.Name)
	default:
		return "the request names no namespace, and the caller is no service account"
	}
}

// Is makes a NamespaceError match [lock.ErrInvalid].
func (e *NamespaceError) Is(target error) bool { return target == lock.ErrInvalid }
