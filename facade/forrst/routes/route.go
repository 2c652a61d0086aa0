package routes

import (
	"slices"
	"strings"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

const (
	// DefaultTimeout is the timeout of routes that name none.
	DefaultTimeout = 30 * time.Second
	// MinTimeout is the shortest timeout.
	MinTimeout = time.Millisecond
	// MaxTimeout is the longest timeout.
	MaxTimeout = time.Hour
)

// Route says where functions run.
type Route struct {
	// URL is where the service speaks the protocol: http or https, without credentials.
	URL string
	// Host is the host of URL, with the port if it names one. Callers are told it when
	// the service fails.
	Host string
	// Functions are the names of functions, and prefixes of names that end in an asterisk.
	// They must not be changed.
	Functions []string
	// Timeout is how long one call may take, from [MinTimeout] to [MaxTimeout].
	Timeout time.Duration
	// NeedsLock says that a call without a lock is refused.
	NeedsLock bool
	// FullKeys are the full keys of the locks that a call may have, and prefixes that end in an
	// asterisk, in NFC. None means any. They must not be changed.
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
