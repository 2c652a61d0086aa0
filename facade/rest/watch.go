package rest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// heartbeatEvery is how often a stream without events shows that it is alive.
	heartbeatEvery = 15 * time.Second
	// maxStreamTime ends a stream, so that its caller is authenticated and authorised anew. A browser
	// goes on by itself.
	maxStreamTime = 30 * time.Minute
	// catchUpTime is how long a replica may take to see what its caller has seen through another one.
	catchUpTime  = 2 * time.Second
	catchUpEvery = 50 * time.Millisecond
	// reconnectAfter is how long a browser waits before it connects again.
	reconnectAfter = 500 * time.Millisecond
	// anyKey is the key of some lock, which need not be held.
	anyKey v1alpha1.FullKey = "lock:any"
)

// eventWriter writes an answer of events.
type eventWriter struct {
	*call

	out *bufio.Writer
}

func newEventWriter(c *call) eventWriter { return eventWriter{c, bufio.NewWriter(c.Writer)} }

// eventStream is one answer of events about locks.
type eventStream struct {
	eventWriter

	// key is that of the lock. Empty means the locks of the namespace.
	key v1alpha1.FullKey
	// prefix is that of the keys, in NFC.
	prefix string
	// lastSeen is the resourceVersion of the last event that the caller has received in an earlier
	// stream. Empty if there was none.
	lastSeen string
	// lastSent is the id that was sent last in this stream. Empty if none was.
	lastSent string
	timers   clock.WithTicker
	term     *term
	// heartbeat fires when the stream is to show that it is alive.
	heartbeat <-chan time.Time
}

// watch answers GET with watch=true.
func (c *call) watch() (*answer, error) {
	var found mistakes
	stream := &eventStream{
		eventWriter: newEventWriter(c), lastSeen: c.readLastEventID(&found), timers: servertime.Timers(c.config.Clock),
	}
	if c.Request.PathValue(keyPart) != "" {
		stream.key = c.readName(&found).fullKey()
	} else {
		stream.prefix = c.query.prefix(&found)
	}
	c.query.checkFlag("watch", &found)
	c.query.refuseOthers(&found)
	if err := found.Problem(); err != nil {
		return nil, err
	}
	if stream.key == "" {
		end, err := c.Caller.Permit.BeginStream()
		if err != nil {
			return nil, err
		}
		defer end()
	}
	err := c.Caller.Permit.Wait(c.Request.Context(), stream.run)
	if c.hasBegun {
		return nil, nil // The answer was sent. Its end is no error: the caller connects again.
	}
	return nil, err
}

// run sends events until ctx ends.
func (s *eventStream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	term, stop := s.newTerm(s.authorize)
	defer stop()
	heartbeat := s.timers.NewTicker(heartbeatEvery)
	defer heartbeat.Stop()
	s.term, s.heartbeat = term, heartbeat.C()
	for {
		following, stop := context.WithCancel(ctx)
		err := s.follow(following)
		stop()
		if !errors.Is(err, errBehind) {
			return err
		}
		s.lastSeen = ""
	}
}

// errBehind means that the caller was slower than the changes. What it has missed is in the next sync.
var errBehind = errors.New("the receiver was too slow")

// follow sends the present state and then each change.
func (s *eventStream) follow(ctx context.Context) error {
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	begun, err := s.config.Locks.Stream(ctx, &s.Caller, s.key)
	if err != nil {
		return err
	}
	told := begin(begun.Present, s.isWanted, s.config.Clock.Now())
	begun.Present = nil // It may be large, and the stream long.
	if err := s.begin(begun.Version, told); err != nil {
		return err
	}
	for {
		if err := s.term.check(ctx); err != nil {
			return err
		}
		events, err := s.await(ctx, begun.Changes, told)
		if len(events) > 0 {
			err = s.sendEvents(events)
		}
		if err != nil {
			return err // The caller has gone, or may see no more.
		}
	}
}

// await returns the next events, if there are any.
func (s *eventStream) await(ctx context.Context, changes <-chan lock.Change, told *history) ([]event, error) {
	expiry, stop := s.expiryTimer(told.next())
	defer stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.term.end.C():
		return nil, errOver
	case <-s.term.review.C():
		return nil, s.term.askAgain(ctx)
	case <-s.heartbeat:
		return nil, s.send(func() { s.write(": alive\n\n") })
	case <-expiry:
		return told.expire(s.config.sinceReclaimable()), nil
	case change, isOpen := <-changes:
		switch {
		case !isOpen:
			// The changes end with ctx, too, and may be seen to do so first.
			return nil, cmp.Or(ctx.Err(), errBehind)
		case !s.isWanted(change.Lock):
			return nil, nil
		}
		return told.follow(change, s.config.certain(), s.config.Clock.Now()), nil
	}
}

// catchUp waits until this replica has seen what the caller has seen already: time must not go backwards
// for a caller that connects to another replica.
func (s *eventStream) catchUp(ctx context.Context) error {
	for waited := time.Duration(0); s.lastSeen != "" && waited < catchUpTime; waited += catchUpEvery {
		if isBehind, err := s.isBehind(ctx); err != nil || !isBehind {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.timers.After(catchUpEvery):
		}
	}
	return nil
}

// isBehind reports whether the caller has seen more than this replica. The stream of any one lock tells
// the latest version of all; that of a namespace would come with its whole state.
func (s *eventStream) isBehind(ctx context.Context) (bool, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	begun, err := s.config.Locks.Stream(ctx, &s.Caller, cmp.Or(s.key, anyKey))
	return err == nil && rules.IsNewer(s.lastSeen, begun.Version), err
}

// expiryTimer fires when others may end the lock with the next expireTime, never if that is zero.
func (s *eventStream) expiryTimer(next time.Time) (expiry <-chan time.Time, stop func()) {
	if next.IsZero() {
		return nil, func() {}
	}
	timer := s.timers.NewTimer(max(next.Sub(s.config.sinceReclaimable()), time.Millisecond))
	return timer.C(), func() { timer.Stop() }
}

// authorize returns nil if the caller may still see what it is told.
func (s *eventStream) authorize(ctx context.Context) error {
	return s.config.Access.Authorize(ctx, &s.Caller, s.operation.verb, s.requestedLock)
}

func (s *eventStream) isWanted(each *v1alpha1.Lock) bool { return lock.HasPrefix(each, s.prefix) }

// beginStream sends the header with the status, if that was not sent yet.
func (s *eventWriter) beginStream(status int) {
	if s.hasBegun {
		return
	}
	s.hasBegun = true
	header := s.Writer.Header()
	header.Set("Content-Type", wire.EventStream)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // Proxies must not collect events.
	server.BeginAnswer(s.Writer, s.Request)
	s.Writer.WriteHeader(status)
}

// begin sends the header, if that was not sent yet, and what is held.
func (s *eventStream) begin(version string, told *history) error {
	s.beginStream(http.StatusOK)
	held := slices.SortedFunc(slices.Values(told.byEnd), func(a, b *heldLock) int {
		return cmp.Or(cmp.Compare(a.Spec.Key, b.Spec.Key), cmp.Compare(a.Spec.Function, b.Spec.Function))
	})
	s.lastSent = version
	// It is a [wire.Snapshot], of which only one lock at a time is there in JSON.
	return s.send(func() {
		s.write(fmt.Sprintf("retry: %d\n", reconnectAfter.Milliseconds()))
		s.beginEvent(wire.EventSync, version)
		s.write(`{"now":"` + problems.FormatTime(s.config.Clock.Now()) + `","locks":[`)
		for index, each := range held {
			if index > 0 {
				s.write(",")
			}
			s.write(string(encode(describe(each.Lock))))
		}
		s.write("]}\n\n")
	})
}

func (s *eventStream) sendEvents(events []event) error {
	return s.send(func() {
		for _, each := range events {
			s.beginEvent(each.name, s.newID(each.version))
			_, _ = s.out.Write(s.config.encoded.encode(each.lock))
			s.write("\n\n")
		}
	})
}

// newID returns the id of an event with a resourceVersion. It is empty unless that is newer than what was
// sent: a delete that a list has shown comes with a version from before, and the caller must not go on
// from there.
func (s *eventStream) newID(version string) string {
	if version == s.lastSent || rules.IsNewer(s.lastSent, version) {
		return ""
	}
	s.lastSent = cmp.Or(version, s.lastSent)
	return version
}

// beginEvent writes an event, as a browser reads it, up to its data. These are one line: JSON has no line
// ends in texts.
func (s *eventStream) beginEvent(name, id string) {
	s.write("event: " + name + "\n")
	if id != "" {
		s.write("id: " + id + "\n")
	}
	s.write("data: ")
}

// write needs [eventWriter.send], which tells the error.
func (s *eventWriter) write(text string) { _, _ = s.out.WriteString(text) }

// send sends what is written.
func (s *eventWriter) send(write func()) error {
	server.BeginAnswer(s.Writer, s.Request)
	write()
	if err := s.out.Flush(); err != nil {
		return err
	}
	if err := http.NewResponseController(s.Writer).Flush(); err != nil {
		return err
	}
	// Until the next event there is nothing to write.
	server.BeginCall(s.Writer, s.Request)
	return nil
}
