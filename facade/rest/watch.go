package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
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
)

// eventStream is one answer of events.
type eventStream struct {
	*call

	// key is that of the lock. Empty means the locks of the namespace.
	key    v1alpha1.FullKey
	prefix string
	// lastSeen is the resourceVersion of the last event that the caller has received in an earlier
	// stream. Empty if there was none.
	lastSeen string
	timers   clock.WithTicker
}

// watch answers GET with watch=true.
func (c *call) watch() (*answer, error) {
	stream := &eventStream{call: c, lastSeen: c.request.Header.Get(lastEventHeader), timers: servertime.Timers(c.config.Clock)}
	var found mistakes
	if c.request.PathValue(keyPart) != "" {
		stream.key = c.readName(&found).fullKey()
	} else {
		stream.prefix = c.query.text("prefix")
	}
	c.query.checkFlag("watch", &found)
	c.query.refuseOthers(&found)
	if _, err := strconv.ParseUint(stream.lastSeen, 10, 64); stream.lastSeen != "" && err != nil {
		found.add(FieldError{In: inHeader, Field: lastEventHeader, Detail: "must be the id of an event"})
	}
	if err := found.problem(); err != nil {
		return nil, err
	}
	// A stream takes no more of the service than a caller that waits for a lock.
	err := c.permit.Wait(c.request.Context(), stream.run)
	if c.hasBegun {
		return nil, nil //nolint:nilnil // The answer was sent. Its end is no error: the caller connects again.
	}
	return nil, err
}

// run sends events until ctx ends.
func (s *eventStream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := s.timers.NewTimer(maxStreamTime)
	defer end.Stop()
	heartbeat := s.timers.NewTicker(heartbeatEvery)
	defer heartbeat.Stop()
	for {
		following, stop := context.WithCancel(ctx)
		err := s.follow(following, end.C(), heartbeat.C())
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
func (s *eventStream) follow(ctx context.Context, end, heartbeat <-chan time.Time) error {
	begun, err := s.catchUp(ctx)
	if err != nil {
		return err
	}
	told := begin(begun.Present, s.isWanted, s.config.Clock.Now())
	if err := s.begin(begun.Version, told); err != nil {
		return err
	}
	for {
		expiry, stop := s.expiryTimer(told.next)
		var events []event
		select {
		case <-ctx.Done():
			stop()
			return ctx.Err()
		case <-end:
			stop()
			return nil
		case <-heartbeat:
			err = s.sendText(": alive\n\n")
		case <-expiry:
			events = told.expire(s.config.Clock.Now())
		case change, isOpen := <-begun.Changes:
			if !isOpen {
				stop()
				return errBehind
			}
			if s.isWanted(change.Lock) {
				events = told.follow(change, s.config.Clock.Now())
			}
		}
		stop()
		if len(events) > 0 {
			err = s.send(events)
		}
		if err != nil {
			return err // The caller has gone.
		}
	}
}

// catchUp begins to follow the locks, once this replica has seen what the caller has seen already: time
// must not go backwards for a caller that connects to another replica.
func (s *eventStream) catchUp(ctx context.Context) (lock.Stream, error) {
	for waited := time.Duration(0); ; waited += catchUpEvery {
		attempt, stop := context.WithCancel(ctx)
		begun, err := s.config.Locks.Stream(attempt, &s.caller, s.key)
		if err != nil || s.lastSeen == "" || !rules.IsNewer(s.lastSeen, begun.Version) || waited >= catchUpTime {
			context.AfterFunc(ctx, stop)
			return begun, err
		}
		stop()
		select {
		case <-ctx.Done():
			return lock.Stream{}, ctx.Err()
		case <-s.timers.After(catchUpEvery):
		}
	}
}

// expiryTimer fires when the next lock expires, never if that is zero.
func (s *eventStream) expiryTimer(next time.Time) (expiry <-chan time.Time, stop func()) {
	if next.IsZero() {
		return nil, func() {}
	}
	timer := s.timers.NewTimer(max(next.Sub(s.config.Clock.Now()), time.Millisecond))
	return timer.C(), func() { timer.Stop() }
}

func (s *eventStream) isWanted(each *v1alpha1.Lock) bool { return lock.HasPrefix(each, s.prefix) }

// begin sends the header, if that was not sent yet, and what is held.
func (s *eventStream) begin(version string, told *history) error {
	if !s.hasBegun {
		s.hasBegun = true
		header := s.writer.Header()
		header.Set("Content-Type", eventStreamType)
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Accel-Buffering", "no") // Proxies must not collect events.
		server.BeginAnswer(s.writer, s.request)
		s.writer.WriteHeader(http.StatusOK)
	}
	state := Locks{Locks: make([]Lock, 0, len(told.held))}
	for _, each := range told.held {
		state.Locks = append(state.Locks, describe(each))
	}
	slices.SortFunc(state.Locks, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Function, b.Function))
	})
	return s.sendText(fmt.Sprintf("retry: %d\n%s", reconnectAfter.Milliseconds(), eventText(eventSync, version, state)))
}

func (s *eventStream) send(events []event) error {
	var text strings.Builder
	for _, each := range events {
		text.WriteString(eventText(each.name, each.version, describe(each.lock)))
	}
	return s.sendText(text.String())
}

// eventText is an event as a browser reads it. Its data is one line: JSON has no line ends in texts.
func eventText(name, version string, data any) string {
	id := ""
	if version != "" {
		id = "id: " + version + "\n"
	}
	return "event: " + name + "\n" + id + "data: " + string(encode(data)) + "\n\n"
}

func (s *eventStream) sendText(text string) error {
	server.BeginAnswer(s.writer, s.request)
	if _, err := s.writer.Write([]byte(text)); err != nil {
		return err
	}
	if err := http.NewResponseController(s.writer).Flush(); err != nil {
		return err
	}
	// Until the next event there is nothing to write.
	server.BeginCall(s.writer, s.request)
	return nil
}
