package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/line"
)

// WatchOptions configures a [Watch].
type WatchOptions struct {
	// Source tells the replicas that are ready. Required.
	Source Source
	// Line is told of the replicas that are ready. Required.
	Line *line.Line
	// TokenFile and AuthorityFile are read for each connection: the token of this replica for the [Audience],
	// and the authorities of the certificates that replicas serve, in PEM. Required.
	TokenFile, AuthorityFile string
	// ServerName is the name in those certificates. Required.
	ServerName string
	// Clock tells when to look for the next token. Nil means the real clock.
	Clock clock.PassiveClock
	// Logger gets what goes wrong. Zero discards.
	Logger logr.Logger
}

// Source knows the replicas that are ready. [FromSlices] and [FromFile] return sources.
type Source interface {
	// run calls changed with each new list of them, one at a time, until ctx ends.
	run(ctx context.Context, changed func([]member))
}

// Watch connects a line to the replicas that are ready.
type Watch struct {
	options WatchOptions
	// connections are those to the other replicas.
	connections map[member]*grpc.ClientConn
	// members are the replicas that are ready, with this one, for other goroutines. They are not changed.
	members atomic.Pointer[[]member]
}

// NewWatch returns a watch that is not started.
func NewWatch(options WatchOptions) (*Watch, error) {
	if options.Source == nil || options.Line == nil || options.TokenFile == "" || options.AuthorityFile == "" || options.ServerName == "" {
		return nil, errors.New("peers: Source, Line, TokenFile, AuthorityFile and ServerName are required")
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Watch{options: options, connections: map[member]*grpc.ClientConn{}}, nil
}

// Start tells the line of the replicas until ctx ends. It implements controller-runtime's manager.Runnable.
func (w *Watch) Start(ctx context.Context) error {
	w.options.Source.run(ctx, w.meet)
	w.meet(nil) // The streams live as long as the line.
	return nil
}

// IsMember reports whether a replica of that name is ready, as far as the source has told. Safe for concurrent use.
func (w *Watch) IsMember(name string) bool {
	return slices.ContainsFunc(w.known(), func(known member) bool { return known.name == name })
}

// HasMember reports whether a replica that is ready has the address, as far as the source has told. Safe for
// concurrent use.
func (w *Watch) HasMember(address netip.Addr) bool {
	return slices.ContainsFunc(w.known(), func(known member) bool {
		at, err := netip.ParseAddrPort(known.address) // It may be a name.
		return err == nil && at.Addr().Unmap() == address.Unmap()
	})
}

// Known counts the replicas that are ready, with this one, as far as the source has told: 0 while it has told nothing.
// Safe for concurrent use.
func (w *Watch) Known() int { return len(w.known()) }

func (w *Watch) known() []member {
	if members := w.members.Load(); members != nil {
		return *members
	}
	return nil
}

// NeedLeaderElection is false: every replica knows the others.
func (w *Watch) NeedLeaderElection() bool { return false }

// meet connects to the members. The line closes the connections to others.
func (w *Watch) meet(members []member) {
	byName := map[string]*grpc.ClientConn{}
	kept := map[member]*grpc.ClientConn{}
	names := make([]string, 0, len(members))
	for _, member := range members {
		names = append(names, member.name)
		if member.name == w.options.Line.Self() {
			continue
		}
		connection := w.connections[member]
		if connection == nil {
			var err error
			if connection, err = w.connect(member); err != nil {
				w.options.Logger.Error(err, "Cannot connect to another replica", "replica", member.name)
				continue
			}
		}
		byName[member.name], kept[member] = connection, connection
	}
	w.members.Store(&members)
	w.options.Line.SetMembers(names, byName)
	w.connections = kept
}

const (
	// firstRedial and lastRedial bound the pause after a connection that has failed. A longer one would keep replicas
	// apart after the network has recovered, and their waiters in several lines.
	firstRedial, lastRedial = 100 * time.Millisecond, time.Second
	// dialTimeout bounds a try to connect.
	dialTimeout = 3 * time.Second
	// silentFor is after which time without a word a connection is tried, and answerWithin how long that may take. After
	// it the connection is dialled anew: streams that were opened on one that is dead would never begin, for as long as
	// TCP tries. What was sent and is not acknowledged ends it as soon at the client; the server goes by its own tries alone,
	// since it does not see the TCP connection within a [listener.Conn].
	silentFor    = 10 * time.Second
	answerWithin = 2 * time.Second
)

// connect returns a connection that dials when it is used.
func (w *Watch) connect(to member) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+to.address,
		grpc.WithNoProxy(), // One that is set in the environment is for what is outside of the cluster.
		grpc.WithStreamInterceptor(openIdentifying(tokenFile(w.options.TokenFile), w.options.Clock)),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, ServerName: w.options.ServerName,
			InsecureSkipVerify: true, //nolint:gosec // verify checks the certificate by the authorities of the moment
			VerifyConnection:   w.verify,
		})),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: backoff.DefaultConfig.Multiplier, Jitter: backoff.DefaultConfig.Jitter, MaxDelay: lastRedial},
			MinConnectTimeout: dialTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silentFor, Timeout: answerWithin, PermitWithoutStream: true}),
		grpc.WithPerRPCCredentials(tokenFile(w.options.TokenFile)))
}

// verify checks the certificate of another replica. The authorities may have changed since the last connection.
func (w *Watch) verify(state tls.ConnectionState) error {
	pem, err := os.ReadFile(w.options.AuthorityFile)
	if err != nil {
		return fmt.Errorf("read the authorities of replicas: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) || len(state.PeerCertificates) == 0 {
		return fmt.Errorf("no certificates in %s", w.options.AuthorityFile)
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		intermediates.AddCert(certificate)
	}
	_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, DNSName: state.ServerName})
	return err
}

// tokenFile sends the token in a file.
type tokenFile string

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (t tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := t.read()
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (t tokenFile) read() (string, error) {
	token, err := os.ReadFile(string(t))
	if err != nil {
		return "", fmt.Errorf("read the token for the other replicas: %w", err)
	}
	return strings.TrimSpace(string(token)), nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials].
func (tokenFile) RequireTransportSecurity() bool { return true }
