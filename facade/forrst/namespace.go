package forrst

import (
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// namespacePart is the part of the path that names a namespace.
const namespacePart = "namespace"

// namesOfNamespaces returns those that a request names, usually none.
func namesOfNamespaces(r *http.Request) []string {
	names := r.Header.Values(wire.NamespaceHeader)
	if fromPath := r.PathValue(namespacePart); fromPath != "" {
		names = append(slices.Clip(names), fromPath)
	}
	return names
}

// chooseNamespace decides where the locks of the call are: where the request says, or else
// in the namespace of the caller's service account. Where nobody is authenticated, there
// is only one. Unless it is needed, it may be unknown.
func (c *call) chooseNamespace(isNeeded bool) error {
	if c.config.Access == nil {
		c.caller.Namespace = c.config.Namespace
		return onlyNamespace(c.named, c.config.Namespace)
	}
	for _, name := range c.named {
		switch problems := validation.IsDNS1123Label(name); {
		case len(problems) > 0:
			return namespaceProblem(fmt.Sprintf("%q is not the name of a namespace: %s", name, problems[0]))
		case name != c.named[0]:
			return namespaceProblem(fmt.Sprintf("The path and the %s header must not name different namespaces, %q and %q",
				wire.NamespaceHeader, c.named[0], name))
		}
		c.caller.Namespace = name
	}
	if c.caller.Namespace == "" {
		// Whoever is no service account has none.
		c.caller.Namespace, _, _ = serviceaccount.SplitUsername(c.caller.holder())
	}
	if c.caller.Namespace == "" && isNeeded {
		return namespaceProblem(fmt.Sprintf("The caller is no service account, so the request must name a namespace, by the %s header or by the path %s/{namespace}",
			wire.NamespaceHeader, wire.Path))
	}
	return nil
}

// onlyNamespace refuses a namespace that is not served, rather than to lock a key of the
// same name elsewhere.
func onlyNamespace(named []string, served string) error {
	for _, name := range named {
		if name != served {
			return namespaceProblem(fmt.Sprintf("The %s header and the path must name the namespace %q or none: no other namespace is served here",
				wire.NamespaceHeader, served))
		}
	}
	return nil
}

func namespaceProblem(message string) error {
	return &envelope.Error{Code: envelope.InvalidArguments, Message: message}
}
