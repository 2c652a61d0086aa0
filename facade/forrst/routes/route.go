package routes

import "time"

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
}
