package peers

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/listener"
	"forrst.dev/lock-operator/lock/line"
)

// Audience is the one of the tokens that replicas show each other. It is of no use elsewhere.
const Audience = "peers.lock-operator.forrst.dev"

// Authenticator tells who has sent a request; [auth.Access] is one, for the [Audience].
type Authenticator interface {
	Authenticate(request *http.Request) (user.Info, error)
}

// Options configures a [Service].
type Options struct {
	// Line is the one of this replica. Required.
	Line *line.Line
	// Listener gets the connections of the other replicas. Required.
	Listener net.Listener
	// Certificate is served to them. Required.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Access authenticates them, and User is the name that they must have: this replica's own. Required.
	Access Authenticator
	User   string
	// Guest is the user name of guests, which are no replicas: they ask for locks of their own, see
	// [line.ContextWithGuest]. It differs from User. Empty admits none.
	Guest string
	// IsMember reports whether a Pod is a replica that is ready, such as [Watch.IsMember]: only for these streams
	// are opened, by tokens that are bound to them. Guests need a token that is bound to
	// a Pod. Nil opens them for any token of User and Guest, for replicas that are no Pods.
	IsMember func(pod string) bool
	// HasMember reports whether a replica that is ready has the address, such as [Watch.HasMember]: connections from
	// there have room of their own. Nil knows none.
	HasMember func(address netip.Addr) bool
	// Clock tells whether tokens expire. Nil means the real clock.
	Clock clock.PassiveClock
	// Logger gets what goes wrong. Zero discards.
	Logger logr.Logger
}

// Service serves the line to the other replicas.
type Service struct {
	options  Options
	listener *listener.Listener
	server   *grpc.Server
	rates    *reviewRates
}

// NewService returns a service that already listens.
func NewService(options Options) (*Service, error) {
	if options.Line == nil || options.Listener == nil || options.Certificate == nil || options.Access == nil || options.User == "" {
		return nil, errors.New("peers: Line, Listener, Certificate, Access and User are required")
	}
	if options.Guest == options.User {
		return nil, errors.New("peers: Guest and User must differ")
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	s := &Service{options: options, rates: newReviewRates(options.Clock)}
	s.listener = listener.Limit(options.Listener, listener.Options{Max: maxStrangers, MaxPerNetwork: maxPerOrigin, IsMember: options.HasMember})
	s.server = grpc.NewServer(append(line.ServerOptions(),
		grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: options.Certificate})),
		grpc.StreamInterceptor(s.admit),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: silentFor, Timeout: answerWithin, MaxConnectionIdle: maxIdle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: silentFor / 2, PermitWithoutStream: true}),
	)...)
	options.Line.Register(s.server)
	return s, nil
}

const (
	// handshakeTimeout bounds the handshake of a connection.
	handshakeTimeout = 5 * time.Second
	// maxIdle is for how long a connection may have no stream: strangers have none.
	maxIdle = 5 * time.Second
	// maxHeaderBytes bounds the header of a stream, which is a token.
	maxHeaderBytes = 16 << 10
	// maxStreams bounds those of one connection; a replica needs one.
	maxStreams = 4
	// maxStreamTime is for how long a stream may go on by one token, also if that expires later or does not tell when. Then
	// the other replica opens another stream, and its callers keep their places.
	maxStreamTime = time.Hour
)

// admit lets in the streams of replicas of the same installation, and of guests, for as long as their tokens are valid.
func (s *Service) admit(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	var authorization []string
	if given, ok := metadata.FromIncomingContext(stream.Context()); ok {
		authorization = given.Get("authorization")
	}
	shown, err := s.review(stream.Context(), authorization)
	if err != nil {
		return err
	}
	if from, ok := peer.FromContext(stream.Context()); ok {
		release := s.listener.From(from.Addr).Hold(true)
		defer release()
	}
	admitted := newAdmitted(s, stream, shown)
	defer admitted.end()
	return serve(server, admitted)
}

// review returns what the token says of a replica that is ready, or of a guest. The error is a status of gRPC.
func (s *Service) review(ctx context.Context, authorization []string) (claims, error) {
	asked := (&http.Request{Header: http.Header{"Authorization": authorization}}).WithContext(ctx)
	shown := claimsOf(asked.Header.Get("Authorization"))
	if s.options.IsMember != nil && !s.mayBeAdmitted(shown) {
		// The API server is not asked about it. A replica that has just become ready tries again.
		return claims{}, status.Error(codes.PermissionDenied, "only replicas of the façade that are ready, and guests, may call this")
	}
	if !s.rates.permits(s.originOf(ctx)) {
		return claims{}, status.Error(codes.ResourceExhausted, "too many streams were opened from this address")
	}
	caller, err := s.options.Access.Authenticate(asked)
	if err != nil {
		return claims{}, status.Error(codes.Unauthenticated, "the caller is not authenticated")
	}
	shown.user = caller.GetName()
	switch pod := podOf(caller); {
	case shown.user == s.options.User && s.isMember(pod), s.isGuest(shown.user) && (s.options.IsMember == nil || pod != ""):
		return shown, nil
	case shown.user == s.options.User:
		// A replica that has just become ready asks again.
		s.options.Logger.V(1).Info("Refused a stream of a Pod that is no replica as far as this one knows", "pod", pod)
		return claims{}, status.Error(codes.PermissionDenied, "only replicas of the façade that are ready may call this")
	}
	s.options.Logger.Info("Refused a stream of a caller that is neither a replica of the façade nor a guest", "user", shown.user)
	return claims{}, status.Error(codes.PermissionDenied, "only replicas of the façade, and guests that are Pods, may call this")
}

// originOf returns where a stream comes from.
func (s *Service) originOf(ctx context.Context) origin {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return origin{}
	}
	return originOf(from.Addr.String(), s.options.HasMember)
}

// claims are what a token of a service account says. They prove nothing before the API server has found it valid.
type claims struct {
	// user is whom the API server has found it valid for; empty before.
	user       string
	Subject    string   `json:"sub"`
	Audiences  []string `json:"aud"`
	Expiry     int64    `json:"exp"`
	Kubernetes struct {
		Pod struct {
			Name string `json:"name"`
		} `json:"pod"`
	} `json:"kubernetes.io"`
}

// claimsOf returns those of a bearer token; zero if it has none that can be read.
func claimsOf(credentials string) (shown claims) {
	parts := strings.Split(credentials, ".")
	if len(parts) != 3 {
		return claims{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &shown) != nil {
		return claims{}
	}
	return shown
}

// mayBeAdmitted reports whether the claims are those of a replica that is ready, or of a guest.
func (s *Service) mayBeAdmitted(shown claims) bool {
	pod := shown.Kubernetes.Pod.Name
	return slices.Contains(shown.Audiences, Audience) &&
		(shown.Subject == s.options.User && s.isMember(pod) || s.isGuest(shown.Subject) && pod != "")
}

func (s *Service) isMember(pod string) bool {
	return s.options.IsMember == nil || s.options.IsMember(pod)
}

func (s *Service) isGuest(user string) bool { return s.options.Guest != "" && user == s.options.Guest }

// podOf returns the Pod that the token of the caller is bound to, or "".
func podOf(caller user.Info) string {
	if pods := caller.GetExtra()[serviceaccount.PodNameKey]; len(pods) == 1 {
		return pods[0]
	}
	return ""
}

// timeLeft returns for how long a stream may go on by the token: until it expires, and at most maxStreamTime.
func (c claims) timeLeft(now time.Time) time.Duration {
	if c.Expiry == 0 {
		return maxStreamTime
	}
	return min(time.Unix(c.Expiry, 0).Sub(now), maxStreamTime)
}

// Start serves until ctx ends. It implements controller-runtime's manager.Runnable.
func (s *Service) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the other replicas: %w", err)
	case <-ctx.Done():
		s.server.Stop()
		return <-ended // Nil, since it was stopped.
	}
}

// NeedLeaderElection is false: every replica is home to some lines.
func (s *Service) NeedLeaderElection() bool { return false }
