package rest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

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

// followFeed answers GET of a feed.
func (c *call) followFeed() (*answer, error) {
	var found mistakes
	c.query.refuseOthers(&found)
	if err := found.problem(); err != nil {
		return nil, err
	}
	if err := c.authorizeFeed(c.request.Context()); err != nil {
		return nil, err
	}
	end, err := c.permit.BeginStream()
	if err != nil {
		return nil, err
	}
	defer end()
	stream := &feedStream{newEventWriter(c)}
	err = c.permit.Wait(c.request.Context(), stream.run)
	if c.hasBegun {
		return nil, nil //nolint:nilnil // The answer was sent. Its end is no error: the caller connects again.
	}
	return nil, err
}

// authorizeFeed returns nil if the caller may see a feed, which shows what a list and a watch do.
func (c *call) authorizeFeed(ctx context.Context) error {
	for _, verb := range []string{access.VerbWatch, access.VerbList} {
		if err := c.config.Access.Authorize(ctx, &c.caller, verb, nil); err != nil {
			return err
		}
	}
	return nil
}

// isWithdrawn reports whether the caller may see a stream no longer. While the API server does not answer, it may; not while
// the caller itself has used up its reviews, since it could go on so for as long as it likes.
func (c *call) isWithdrawn(ctx context.Context, authorize func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	err := authorize(ctx)
	_, isRefused := errors.AsType[*limits.Error](err)
	return isRefused || errors.Is(err, lock.ErrForbidden)
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
	joined, leave := s.feeds.join(s.caller.Namespace) //nolint:contextcheck // The feed serves other viewers, too.
	defer leave()
	timers := servertime.Timers(s.config.Clock)
	end := timers.NewTimer(maxStreamTime)
	defer end.Stop()
	heartbeat := timers.NewTicker(heartbeatEvery)
	defer heartbeat.Stop()
	review := timers.NewTimer(pauseBeforeReview())
	defer review.Stop()
	var from position
	linesVersion := 0
	for {
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C():
			return nil
		case <-review.C():
			review.Reset(pauseBeforeReview())
			if s.isWithdrawn(ctx, s.authorizeFeed) {
				return nil
			}
		case <-more.news:
		case <-heartbeat.C():
			if s.hasBegun {
				if err := s.send(func() { s.write(": alive\n\n") }); err != nil {
					return err
				}
			}
		}
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
	s.beginStream()
	return s.send(func() {
		if more.snapshot != nil {
			more.snapshot.write(s.out, problems.FormatTime(s.config.Clock.Now()))
		}
		_, _ = s.out.Write(more.text)
	})
}
