// Package routes finds the service that a function runs in.
//
// A [Table] maps names of functions to routes. A [File] is a table that follows a file of YAML.
package routes

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// The timeouts of routes.
const (
	DefaultTimeout = 30 * time.Second // of routes that name none
	MinTimeout     = time.Millisecond
	MaxTimeout     = time.Hour
)

// Route says where functions run.
type Route struct {
	// URL is where the service speaks the protocol: http or https, without credentials.
	URL string
	// Host is the host of URL, with the port if it names one. Callers are told it when the service fails.
	Host string
	// Functions are the names of functions, and prefixes of names that end in an asterisk. They must not be changed.
	Functions []string
	// Timeout is how long one call may take, from [MinTimeout] to [MaxTimeout].
	Timeout time.Duration
	// NeedsLock says that a call without a lock is refused.
	NeedsLock bool
	// FullKeys are the full keys of the locks that a call may have, and prefixes that end in an asterisk, in NFC. None means
	// any. They must not be changed.
	FullKeys []string
	// Namespaces are those that a call may be about. None means any. They must not be changed.
	Namespaces []string
}

// AllowsKey reports whether a call may have the lock.
func (r *Route) AllowsKey(key v1alpha1.FullKey) bool {
	return len(r.FullKeys) == 0 || slices.ContainsFunc(r.FullKeys, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(string(key), prefix)
		}
		return string(key) == pattern
	})
}

// ServesNamespace reports whether a call may be about the namespace.
func (r *Route) ServesNamespace(namespace string) bool {
	return len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, namespace)
}

// reserved begin the names of functions that the façade or another part of the protocol defines. They are never routed.
var reserved = []string{"forrst.", "urn:cline:", "urn:k8s:"}

// IsReserved reports whether a function can never be routed, whatever the patterns are.
func IsReserved(function string) bool {
	return slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(function, prefix) })
}

// Table finds routes by the names of functions. The zero Table has none. A Table is made by [Parse] and safe for concurrent
// use.
type Table struct {
	exact, prefixes map[string]*Route
	// lengths are those of prefixes, the longest first.
	lengths []int
	// routes are all routes in the order of the file.
	routes []Route
}

// Find returns the route of a function. Of all patterns that match, the longest counts.
func (t *Table) Find(function string) (Route, bool) {
	if IsReserved(function) {
		return Route{}, false
	}
	if route, ok := t.exact[function]; ok {
		return *route, true
	}
	longest := len(function)
	if strings.HasSuffix(function, ".") || strings.HasSuffix(function, ":") {
		longest-- // A prefix that ends in a separator stands for the functions below it, of which this is none.
	}
	for _, length := range t.lengths {
		if length > longest {
			continue
		}
		if route, ok := t.prefixes[function[:length]]; ok {
			return *route, true
		}
	}
	return Route{}, false
}

// Routes returns all routes, in the order of the file.
func (t *Table) Routes() []Route { return slices.Clone(t.routes) }

// add adds a pattern. It reports false if the table has it already.
func (t *Table) add(pattern string, route *Route) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	patterns := t.exact
	if isPrefix {
		patterns = t.prefixes
	}
	if _, ok := patterns[prefix]; ok {
		return false
	}
	patterns[prefix] = route
	if isPrefix && !slices.Contains(t.lengths, len(prefix)) {
		t.lengths = append(t.lengths, len(prefix))
		slices.SortFunc(t.lengths, func(a, b int) int { return cmp.Compare(b, a) })
	}
	return true
}
