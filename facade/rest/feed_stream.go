package rest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// resyncPause is how long a viewer that was too slow is told nothing: a sync has all locks.
	resyncPause = 2 * time.Second
	// resyncSpread is how much longer at most, so that not all viewers are written to at once after the feed itself
	// had to begin again.
	resyncSpread = 2 * time.Second
	// reviewEvery is how often the caller of a stream is authorised anew at least.
	reviewEvery = time.Minute
	// reviewTimeout is for how long a stream may tell no news because of that.
	reviewTimeout = 2 * time.Second
)

// feedStream is the answer to one viewer.
type feedStream struct{ eventWriter }

// term is how long a stream may go on. It is asked about before the news of each round: a select chooses at random, and of a
// busy stream there is always more to tell.
type term struct {
	call *call
	// authorize returns nil as long as the caller may see the stream.
	authorize func(context.Context) error
	// end fires when the stream is to end, and review when the caller's right is to be asked for again.
	end, review clock.Timer
}

// newTerm begins the term of a stream. stop must follow.
func (c *call) newTerm(authorize func(context.Context) error) (begun *term, stop func()) {
	timers := servertime.Timers(c.config.Clock)
	t := &term{call: c, authorize: authorize, end: timers.NewTimer(maxStreamTime), review: timers.NewTimer(pauseBeforeReview())}
	return t, func() {
		t.end.Stop()
		t.review.Stop()
	}
}

// errOver means that a stream has reached its end. A caller that was told something connects again.
var errOver = fmt.Errorf("%w: the stream has ended before there was anything to tell", lock.ErrUnavailable)

// check returns [errOver] at the end, the error of ctx, or [lock.ErrForbidden] if a review that is due finds that the caller
// has lost the right.
func (t *term) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-t.end.C():
		return errOver
	default:
	}
	select {
	case <-t.review.C():
		return t.askAgain(ctx)
	default:
		return nil
	}
}

// askAgain returns an error if the caller has lost its right.
func (t *term) askAgain(ctx context.Context) error {
	t.review.Reset(pauseBeforeReview())
	return t.call.withdrawal(ctx, t.authorize)
}

// followFeed answers GET of a feed.
func (c *call) followFeed() (*answer, error) {
	var found mistakes
	c.query.refuseOthers(&found)
	if err := found.Problem(); err != nil {
		return nil, err
	}
	if err := c.authorizeFeed(c.Request.Context()); err != nil {
		return nil, err
	}
	end, err := c.Caller.Permit.BeginStream()
	if err != nil {
		return nil, err
	}
	defer end()
	stream := &feedStream{newEventWriter(c)}
	err = c.Caller.Permit.Wait(c.Request.Context(), stream.run)
	if c.hasBegun {
		return nil, nil // The answer was sent. Its end is no error: the caller connects again.
	}
	return nil, err
}

// authorizeFeed returns nil if the caller may see a feed, which shows what a list and a watch do.
func (c *call) authorizeFeed(ctx context.Context) error {
	for _, verb := range []string{access.VerbWatch, access.VerbList} {
		if err := c.config.Access.Authorize(ctx, &c.Caller, verb, nil); err != nil {
			return err
		}
	}
	return nil
}

// withdrawal returns why the caller may see a stream no longer, or nil. While the API server does not answer, it may; not
// while the caller itself has used up the reviews of its streams, since it could go on so for as long as it likes.
func (c *call) withdrawal(ctx context.Context, authorize func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	err := authorize(ctx)
	_, isRefused := errors.AsType[*limits.Error](err)
	if isRefused || errors.Is(err, lock.ErrForbidden) {
		return err
	}
	return nil
}

// pauseBeforeReview differs for each stream, so that those that have begun together do not use up the reviews of their caller at once.
func pauseBeforeReview() time.Duration {
	return reviewEvery - rand.N(reviewEvery/2) //nolint:gosec // not for security
}

func pauseBeforeSync() time.Duration {
	return resyncPause + rand.N(resyncSpread) //nolint:gosec // not for security
}

// run sends what happens until ctx ends.
func (s *feedStream) run(ctx context.Context) error {
	joined, leave := s.feeds.join(s.Caller.Namespace) // The feed serves other viewers, too.
	defer leave()
	term, stop := s.newTerm(s.authorizeFeed)
	defer stop()
	heartbeat := servertime.Timers(s.config.Clock).NewTicker(heartbeatEvery)
	defer heartbeat.Stop()
	var from position
	linesVersion := 0
	for {
		if err := term.check(ctx); err != nil {
			return err
		}
		more, err := joined.since(from, linesVersion)
		if err != nil {
			return err
		}
		if more.snapshot != nil && s.hasBegun {
			if more, err = s.syncLater(ctx, joined); err != nil {
				return err
			}
		}
		if err := s.sendPart(more); err != nil {
			return err // The caller has gone.
		}
		from, linesVersion = more.now, more.linesVersion
		if err := s.await(ctx, term, heartbeat.C(), more.news); err != nil {
			return err
		}
	}
}

// await returns nil when there may be more to send.
func (s *feedStream) await(ctx context.Context, term *term, heartbeat <-chan time.Time, news <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-term.end.C():
		return errOver
	case <-term.review.C():
		return term.askAgain(ctx)
	case <-news:
		return nil
	case <-heartbeat:
		if !s.hasBegun {
			return nil
		}
		return s.send(func() { s.write(": alive\n\n") })
	}
}

// syncLater returns the whole state after a pause.
func (s *feedStream) syncLater(ctx context.Context, joined *feed) (part, error) {
	select {
	case <-ctx.Done():
		return part{}, ctx.Err()
	case <-servertime.Timers(s.config.Clock).After(pauseBeforeSync()):
		return joined.since(position{}, 0)
	}
}

// sendPart sends a part, if there is anything in it.
func (s *feedStream) sendPart(more part) error {
	if more.snapshot == nil && more.text == nil {
		return nil
	}
	s.beginStream(http.StatusOK)
	return s.send(func() {
		if more.snapshot != nil {
			more.snapshot.write(s.out, problems.FormatTime(s.config.Clock.Now()))
		}
		_, _ = s.out.Write(more.text)
	})
}
