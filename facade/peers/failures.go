package peers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"
)

// reportPause is the least time between two lines of the log about one replica, which is tried several times a second.
const reportPause = time.Minute

// failures logs why another replica cannot be asked. Safe for concurrent use.
type failures struct {
	log   logr.Logger
	clock clock.PassiveClock

	mu sync.Mutex
	// last is when a line was logged. Zero if none was.
	last time.Time
}

// openStream is a [grpc.StreamClientInterceptor]. A stream that waits for its connection never tells why there is none:
// this one fails with it, and its caller opens another one.
func (f *failures) openStream(ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	opened, err := open(ctx, description, connection, method, append(slices.Clip(options), grpc.WaitForReady(false))...)
	if err != nil {
		f.report(ctx, err)
		return nil, err
	}
	return &reportingStream{ClientStream: opened, failures: f, ctx: ctx}, nil
}

// report logs err, unless ctx has ended or a line was logged within the pause.
func (f *failures) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // The replica is not to be asked any more.
	}
	f.mu.Lock()
	now := f.clock.Now()
	isDue := f.last.IsZero() || now.Sub(f.last) >= reportPause
	if isDue {
		f.last = now
	}
	f.mu.Unlock()
	if isDue {
		f.log.Info("Cannot reach another replica", "reason", err.Error())
	}
}

// reportingStream reports why it ends if it does before the first answer: the other replica has refused it.
type reportingStream struct {
	grpc.ClientStream
	failures *failures
	// ctx is the caller's; that of the stream ends with it.
	ctx context.Context // a stream has one
	// hasAnswer belongs to the one goroutine that receives.
	hasAnswer bool
}

// RecvMsg implements [grpc.ClientStream].
func (s *reportingStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err == nil {
		s.hasAnswer = true
	} else if !s.hasAnswer {
		s.failures.report(s.ctx, err)
	}
	return err
}
