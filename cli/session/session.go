// Package session has what every command works with: streams, clock, flags, and the
// clients that follow from the flags. A command reads and changes locks through
// [Session.Backend], which is the same on an API server and on a façade; what only an
// API server has, such as other objects and watches of a namespace, comes from
// [Session.Cluster].
package session

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/cli/human"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/servertime"
)

// Options is what a Session is made of. Streams, Clock and Getenv are required.
type Options struct {
	Streams genericiooptions.IOStreams
	// Clock is the local one.
	Clock  clock.WithTicker
	Getenv func(string) string
	// Version is set by the linker. Empty means the version of the build.
	Version string
	// Cluster and Locks replace what the flags lead to, in tests. With Locks alone, the
	// session is one with a façade.
	Cluster client.WithWatch
	Locks   lock.Backend
	// Pod replaces what files and the host name tell of the Pod, in tests.
	Pod *Pod
}

// Pod is the Pod that this process is in.
type Pod struct {
	// Namespace is empty outside of a Pod, and in one without a token.
	Namespace string
	// Host is the host name: the name of the Pod, unless its spec says otherwise.
	Host string
}

// Session is one run of the program. Its flags must have been parsed before any of its
// methods is called. It is not safe for concurrent use, but what its methods return is.
type Session struct {
	genericiooptions.IOStreams
	// Clock is the local one, for timers. [Session.Now] is for times of locks.
	Clock clock.WithTicker
	// Getenv reads the environment.
	Getenv func(string) string
	// Version is set by the linker; it may be empty.
	Version string
	// IsBehindDash says that a shell completes a word behind a --.
	IsBehindDash bool

	options   Options
	config    *genericclioptions.ConfigFlags
	server    string
	tokenFile string
	showTimes bool
	// serverTime learns the time of the service from its answers.
	serverTime *servertime.Clock
	cluster    client.WithWatch
	backend    lock.Backend
	stop       context.CancelFunc
	running    sync.WaitGroup
}

// New returns a session with unset flags.
func New(options Options) *Session {
	return &Session{
		IOStreams:  options.Streams,
		Clock:      options.Clock,
		Getenv:     options.Getenv,
		Version:    options.Version,
		options:    options,
		config:     newConfigFlags(),
		serverTime: servertime.New(options.Clock),
		stop:       func() {},
	}
}

// Now returns the time of the service, as far as its answers have told it; before the
// first answer, the local time. The times of locks are of that clock.
func (s *Session) Now() time.Time { return s.serverTime.Now() }

// Times writes times as the flags say, as of now.
func (s *Session) Times() human.Times { return human.Times{Now: s.Now(), Exact: s.showTimes} }

// Terminal returns what the standard output can show.
func (s *Session) Terminal() terminal.Terminal { return terminal.Of(s.Out, s.Getenv) }

// Pod returns the Pod that this process is in.
func (s *Session) Pod() Pod {
	if s.options.Pod != nil {
		return *s.options.Pod
	}
	namespace, err := os.ReadFile(podNamespaceFile)
	if err != nil {
		return Pod{}
	}
	host, err := os.Hostname()
	if err != nil {
		return Pod{}
	}
	return Pod{Namespace: strings.TrimSpace(string(namespace)), Host: host}
}

// podNamespaceFile comes with the token of a Pod's service account.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Close ends what the session has started, and waits for it. A session that was closed
// must not be used again.
func (s *Session) Close() {
	s.stop()
	s.running.Wait()
	s.cluster, s.backend = nil, nil // Cobra keeps the flags of every command, and with them their sessions.
}
