package peers

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/line"
)

// admitted is the stream of a replica or of a guest. It ends when the token expires that was shown last: the stream of a replica that
// shows its next token in time goes on, and its lines stay where they are.
type admitted struct {
	grpc.ServerStream
	service *Service
	// shown is the token that was shown first.
	shown  claims
	ctx    context.Context // a stream has one
	cancel context.CancelCauseFunc
	expiry *time.Timer
	// reviews has the review of the next token, of which there is one at a time.
	reviews sync.WaitGroup

	mu sync.Mutex
	// isReviewing says that there is a review, and hasEnded that there is to be none any more: messages may still be
	// received while the stream ends.
	isReviewing, hasEnded bool
	// refused is the last token, if its review has failed, and reviewed is when that began. The other replica does not show
	// it again, and the API server may only have been away.
	refused  string
	reviewed time.Time
}

func newAdmitted(service *Service, stream grpc.ServerStream, shown claims) *admitted {
	ctx, cancel := context.WithCancelCause(stream.Context())
	if service.isGuest(shown.user) {
		ctx = line.ContextWithGuest(ctx, shown.user)
	}
	expire := func() { cancel(context.DeadlineExceeded) }
	return &admitted{
		ServerStream: stream, service: service, shown: shown, ctx: ctx, cancel: cancel,
		expiry: time.AfterFunc(shown.timeLeft(service.options.Clock.Now()), expire), //nolint:forbidigo // It is the deadline of ctx.
	}
}

// Context implements [grpc.ServerStream].
func (a *admitted) Context() context.Context { return a.ctx }

// RecvMsg implements [grpc.ServerStream].
func (a *admitted) RecvMsg(message any) error {
	if err := a.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	if identified, ok := message.(line.Identified); ok {
		a.beginReview(identified.ShownToken())
		identified.ShowToken("")
	}
	return nil
}

// beginReview begins a review of the token, or if there is none, after a while of the one that was refused. It must not hold
// up what the stream carries.
func (a *admitted) beginReview(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.service.options.Clock.Now()
	if token == "" && now.Sub(a.reviewed) >= lookAgain {
		token = a.refused
	}
	if token == "" || a.isReviewing || a.hasEnded {
		return
	}
	a.isReviewing, a.reviewed, a.refused = true, now, ""
	a.reviews.Go(func() {
		err := a.extend(token)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.isReviewing = false
		if err != nil {
			a.refused = token
		}
	})
}

// extend lets the stream go on until the token expires, if it is one of the same replica. Otherwise the former one counts.
// The error is that of the review.
func (a *admitted) extend(token string) error {
	shown, err := a.service.review(a.ctx, []string{"Bearer " + token})
	switch {
	case err != nil:
		a.service.options.Logger.V(1).Info("The next token of a stream of another replica was refused; it is asked about again while the former one is valid", "replica", a.pod(), "reason", err.Error())
	case shown.user != a.shown.user, shown.Kubernetes.Pod.Name != a.pod():
		a.service.options.Logger.Info("A stream of another replica has shown the token of yet another one", "replica", a.pod())
	case a.expiry.Stop(): // Otherwise it has expired.
		a.expiry.Reset(shown.timeLeft(a.service.options.Clock.Now()))
	}
	return err
}

// pod is that of the replica or the guest.
func (a *admitted) pod() string { return a.shown.Kubernetes.Pod.Name }

// end frees what the stream has taken.
func (a *admitted) end() {
	a.cancel(nil)
	a.mu.Lock()
	a.hasEnded = true
	a.mu.Unlock()
	a.reviews.Wait()
	a.expiry.Stop()
}

// identifying is a stream to another replica that shows this replica's token again when its file has changed.
type identifying struct {
	grpc.ClientStream
	token tokenFile
	clock clock.PassiveClock
	// Shown is the token that was shown last, and looked is when the file was read. They belong to the one goroutine that
	// sends.
	shown  string
	looked time.Time
}

// lookAgain is how often the file of the token is read, and a token that was refused is asked about again.
const lookAgain = 10 * time.Second

// openIdentifying returns a [grpc.StreamClientInterceptor].
func openIdentifying(token tokenFile, now clock.PassiveClock) grpc.StreamClientInterceptor {
	return func(ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		opened, err := open(ctx, description, connection, method, options...)
		if err != nil {
			return nil, err
		}
		return &identifying{ClientStream: opened, token: token, clock: now, looked: now.Now()}, nil
	}
}

// SendMsg implements [grpc.ClientStream].
func (i *identifying) SendMsg(message any) error {
	if identified, ok := message.(line.Identified); ok && i.clock.Since(i.looked) >= lookAgain {
		i.looked = i.clock.Now()
		if token, err := i.token.read(); err == nil && token != i.shown {
			identified.ShowToken(token)
			i.shown = token
		}
	}
	return i.ClientStream.SendMsg(message)
}
