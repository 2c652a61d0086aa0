package client

import (
	"context"
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

const (
	// DefaultTimeout is how long the façade may take to answer, beyond the time that it is
	// asked to wait, and how long after a lost answer the client tries to find out or
	// undo what happened.
	DefaultTimeout = 10 * time.Second
	// DefaultMaxBlock is the longest wait that the façade is asked for in one call. It is
	// what a façade permits unless configured otherwise.
	DefaultMaxBlock = time.Minute
)

// Option configures a [Client].
type Option func(*options)

type options struct {
	http  *http.Client
	token func(context.Context) (string, error)
	// namespace is the one of calls that name none.
	namespace string
	timeout   time.Duration
	maxBlock  time.Duration
	isWatched bool
	clock     clock.Clock
}

// WithHTTPClient has calls made through an HTTP client, for example one with
// certificates. It is copied. Its Timeout must be zero or longer than the longest wait.
func WithHTTPClient(client *http.Client) Option {
	return func(o *options) { o.http = client }
}

// WithBearerToken has each call authenticated with the token that source returns, such
// as that of a service account. It goes into the Authorization header and nowhere else.
// Source is called for every request, also concurrently, and should cache; its error
// fails the call, and must not hold the token.
func WithBearerToken(source func(context.Context) (string, error)) Option {
	return func(o *options) { o.token = source }
}

// WithBearerTokenFile is [WithBearerToken] with what is in a file, such as that of a
// service-account token that is projected for the façade's audience, lock-operator.forrst.dev. The file is read again every minute, since such tokens
// are replaced long before they expire.
func WithBearerTokenFile(path string) Option {
	file := &tokenFile{path: path}
	return func(o *options) {
		o.token = func(context.Context) (string, error) { return file.read(o.clock) }
	}
}

// WithNamespace has calls that name no namespace be about this one. Without it, that is
// the namespace of the caller's service account, or of a façade that does not authenticate its callers.
func WithNamespace(namespace string) Option {
	return func(o *options) { o.namespace = namespace }
}

// WithTimeout replaces [DefaultTimeout]. More than zero.
func WithTimeout(timeout time.Duration) Option {
	return func(o *options) { o.timeout = timeout }
}

// WithMaxBlock replaces [DefaultMaxBlock], for example where something between client
// and façade cuts connections that have been silent for less. A façade that permits
// only less is asked for less. At least a millisecond.
func WithMaxBlock(longest time.Duration) Option {
	return func(o *options) { o.maxBlock = longest }
}

// WithWatch makes [Client.Watch] work. Each lock that is held then has a stream of the façade's REST door, from
// which a [lock.Held] learns at once that the lock was released by force, and not at its next renewal. A stream
// takes a connection, unless the client speaks HTTP/2, and one of the calls that the façade lets wait for each
// caller. The caller needs the verb watch on locks; without it the next renewal tells.
func WithWatch() Option {
	return func(o *options) { o.isWatched = true }
}

// WithClock replaces the real clock, which measures waits, the pauses between
// attempts and the silence of streams. Timeouts of requests are always by the real clock.
func WithClock(replacement clock.Clock) Option {
	return func(o *options) { o.clock = replacement }
}
