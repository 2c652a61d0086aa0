package access

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Namespace returns where the locks of a call are: where the request says, or else in the
// namespace of the caller's service account. Where callers are not authenticated, only one
// namespace is served. The namespace may be empty unless isNeeded. The error is a
// [*NamespaceError].
func (c *Control) Namespace(caller *Caller, named []string, isNeeded bool) (string, error) {
	if c.access == nil {
		for _, name := range named {
			// To lock a key of the same name elsewhere would be worse than a refusal.
			if name != c.namespace {
				return "", &NamespaceError{Fault: NamespaceNotServed, Name: c.namespace}
			}
		}
		return c.namespace, nil
	}
	for _, name := range named {
		switch problems := validation.IsDNS1123Label(name); {
		case len(problems) > 0:
			return "", &NamespaceError{Fault: NamespaceInvalid, Name: name, Rule: problems[0]}
		case name != named[0]:
			return "", &NamespaceError{Fault: NamespacesDiffer, Name: name, First: named[0]}
		}
	}
	if len(named) > 0 {
		return named[0], nil
	}
	// Users who are no service account have no namespace.
	namespace, _, _ := serviceaccount.SplitUsername(caller.Holder())
	if namespace == "" && isNeeded {
		return "", &NamespaceError{Fault: NamespaceMissing}
	}
	return namespace, nil
}

// Everywhere returns the namespace of a call about the locks of all namespaces that are served: the only one, or none.
// The right to such a call is one in all namespaces.
func (c *Control) Everywhere() string {
	if c.access == nil {
		return c.namespace
	}
	return ""
}
