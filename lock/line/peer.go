package line

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock"
)

// peer is another replica. It is asked over one stream, which is opened anew whenever it breaks.
type peer struct {
	name       string
	connection *grpc.ClientConn
	timers     clock.WithTicker
	log        logr.Logger
	// epoch is where the clock begins by which the others are told when callers came.
	epoch time.Time
	// changed is called when the stream has been opened or has broken.
	changed func()

	mu sync.Mutex
	// stream is nil while there is none, or the replica does not serve. Open is nil only while there is none.
	stream, open *visitOut
	// isLost says that the replica has lost touch with the API server.
	isLost bool
}

// visitOut is one stream to another replica.
type visitOut struct {
	outbox *outbox[question]
	timers clock.WithTicker
	// ahead relates the clock of the other replica to this one's. Only the listener uses it.
	ahead offset

	// refused has a value when the replica has said that it cannot serve.
	refused chan struct{}

	mu     sync.Mutex
	lastID uint64
	// asked are the questions that have no answer yet. Nil when the stream has ended.
	asked map[uint64]recipient
}

// recipient gets the answer to a question once, also when the stream breaks, with the result leaving.
type recipient struct {
	// Either into is that of a caller that waits, or call gets the answer.
	into *mailbox
	call chan<- answer
	// hasLeft says that the caller has left, and that the home has not said yet that it knows.
	hasLeft bool
}

// heard takes in what an answer says besides its result.
func (r recipient) heard(told answer) {
	if told.IsUnsure && r.into != nil {
		r.into.doubt()
	}
}

func (r recipient) answered(told answer) {
	switch {
	case r.hasLeft && told.Result == leaving:
		r.into.doubt()
	case r.hasLeft:
	case r.into != nil:
		if !r.into.put(outcomeOf(told)) && told.Result == leaving {
			r.into.doubt() // The caller is leaving, and its word to the home came too late.
		}
	default:
		r.call <- told
	}
}

// reportPause is the least time between two lines of the log that say why one replica cannot be asked.
const reportPause = time.Minute

// run keeps a stream open until ctx ends.
func (p *peer) run(ctx context.Context) {
	var reported time.Time
	for ctx.Err() == nil {
		isReached, err := p.visit(ctx)
		if ctx.Err() != nil {
			return
		}
		switch now := p.timers.Now(); {
		case isReached:
			p.log.V(1).Info("Stream to another replica has ended", "replica", p.name, "reason", errorText(err))
		case reported.IsZero() || now.Sub(reported) >= reportPause:
			p.log.Info("Cannot reach another replica", "replica", p.name, "address", p.connection.Target(), "reason", errorText(err))
			reported = now
		}
		select {
		case <-ctx.Done():
		case <-p.timers.After(pingPeriod):
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// visit opens a stream and returns when it has ended. IsReached says that the replica has answered.
func (p *peer) visit(ctx context.Context) (isReached bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// One that waits for its connection would never tell why there is none.
	stream, err := p.connection.NewStream(ctx, &streamDescription, streamMethod, grpc.WaitForReady(false), grpc.ForceCodec(codec{}))
	if err != nil {
		return false, err
	}
	out := &visitOut{outbox: newOutbox[question](), timers: p.timers, refused: make(chan struct{}, 1), asked: map[uint64]recipient{}}
	p.setOpen(out)
	defer p.setOpen(nil)
	pulse := newPulse(p.timers)
	ended := make(chan error, 3)
	var running sync.WaitGroup
	running.Go(func() {
		err := out.outbox.drain(ctx.Done(), func(message question) error {
			message.Sent = p.timers.Since(p.epoch)
			return stream.SendMsg(&message)
		})
		if !errors.Is(err, io.EOF) { // Otherwise the listener learns the reason.
			ended <- err
		}
	})
	running.Go(func() { out.ping(ctx, p.timers) })
	running.Go(func() {
		select {
		case <-ctx.Done():
		case <-out.refused:
			ended <- errRefused
		}
	})
	running.Go(func() { ended <- p.listen(stream, out, pulse) })
	err = pulse.watch(ctx, ended)
	cancel()
	running.Wait() // What is heard last must not make an ended stream the one that is asked.
	p.use(nil, false)
	out.end()
	return pulse.beats.Load() > 0, err
}

// errRefused means that the other replica cannot serve the lines that it is home to.
var errRefused = errors.New("the other replica cannot serve its lines")

// use makes the stream the one that is asked; nil if there is none.
func (p *peer) use(stream *visitOut, isLost bool) {
	p.mu.Lock()
	p.stream, p.isLost = stream, isLost
	p.mu.Unlock()
	p.changed()
}

func (p *peer) setOpen(stream *visitOut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = stream
}

// isAsked reports whether the replica has questions that have no answer yet.
func (p *peer) isAsked() bool {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	if open == nil {
		return false
	}
	open.mu.Lock()
	defer open.mu.Unlock()
	return len(open.asked) > 0
}

// current returns the stream, or nil.
func (p *peer) current() *visitOut {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream
}

// state reports whether there is a stream, and whether the replica has lost touch with the API server.
func (p *peer) state() (isConnected, isLost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream != nil, p.isLost
}

// distrust closes the stream; it is opened anew after a pause.
func (v *visitOut) distrust() {
	select {
	case v.refused <- struct{}{}:
	default:
	}
}

// firstPings is how many pings must be answered before a stream is used. The first message of a stream may be slow, and
// places that come with the next ones are related by it.
const firstPings = 4

func (v *visitOut) ping(ctx context.Context, timers clock.WithTicker) {
	ticker := timers.NewTicker(pingPeriod)
	defer ticker.Stop()
	for v.outbox.put(question{Kind: ping}) {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (p *peer) listen(stream grpc.ClientStream, out *visitOut, pulse *pulse) error {
	isServing, isLost, pongs := false, false, 0
	for {
		var told answer
		if err := stream.RecvMsg(&told); err != nil {
			return err
		}
		pulse.beat()
		out.ahead.note(p.timers.Now(), told.Sent)
		if told.ID != 0 {
			out.tell(told)
			continue
		}
		if told.Result != pong && told.Result != leaving {
			continue // It is of another version.
		}
		// Only its answers to pings show whether the replica serves.
		serves := told.Result == pong
		pongs++
		if serves && !isServing && pongs < firstPings {
			out.outbox.put(question{Kind: ping})
			continue
		}
		switch hasChanged := serves != isServing || told.IsLost != isLost; {
		case serves && hasChanged:
			p.use(out, told.IsLost)
		case hasChanged:
			p.use(nil, false)
		}
		isServing, isLost = serves, told.IsLost
	}
}

// ask sends a question.
func (v *visitOut) ask(asked question, by recipient) (id uint64) {
	v.mu.Lock()
	if v.asked == nil {
		v.mu.Unlock()
		by.answered(answer{Result: leaving})
		return 0
	}
	v.lastID++
	asked.ID = v.lastID
	v.asked[asked.ID] = by
	v.mu.Unlock()
	v.outbox.put(asked)
	return asked.ID
}

// tell passes an answer on. A lock that is offered is the caller's when the home has heard that it is taken:
// otherwise the home could not know whom to give it to after the stream has broken.
func (v *visitOut) tell(told answer) {
	v.mu.Lock()
	by, isAsked := v.asked[told.ID]
	if !isAsked {
		v.mu.Unlock()
		return // The home has been told that the caller has left.
	}
	isFinal := told.Result != offered && told.Result != placed && (!by.hasLeft || told.Result == left)
	if isFinal {
		delete(v.asked, told.ID)
	}
	v.mu.Unlock()
	by.heard(told)
	switch {
	case by.hasLeft && !isFinal: // The home has not heard yet that the caller has left.
		return
	case isFinal:
		by.answered(told)
		return
	case by.into != nil && told.Result == placed:
		by.into.place(v.ahead.at(told.Stood))
		return
	case by.into != nil && told.Lock != nil && by.into.offer(told.Lock, v.timers.Now()):
		v.outbox.put(question{ID: told.ID, Kind: take})
		return
	}
	v.leave(told.ID, false)
}

// leave tells the home that the caller has left. It says that it knows, so that what it has granted before it
// goes is not forgotten.
func (v *visitOut) leave(id uint64, isMoving bool) {
	v.mu.Lock()
	by, isAsked := v.asked[id]
	isAsked = isAsked && !by.hasLeft
	if by.hasLeft = true; isAsked && by.into != nil {
		v.asked[id] = by
	} else if isAsked {
		delete(v.asked, id)
	}
	v.mu.Unlock()
	if isAsked {
		v.outbox.put(question{ID: id, Kind: leave, IsMoving: isMoving})
	}
}

// end answers all questions that are open.
func (v *visitOut) end() {
	v.outbox.close()
	v.mu.Lock()
	asked := v.asked
	v.asked = nil
	v.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(asked)) { // Lines are made anew in order, which is quickest.
		asked[id].answered(answer{Result: leaving})
	}
}

// inquiry is a question to another replica that has one answer.
type inquiry struct {
	stream *visitOut
	id     uint64
	// answered gets the answer, which is leaving when the stream has ended.
	answered chan answer
}

// inquire sends a question, and reports whether it was sent. leave must follow then.
func (v *visitOut) inquire(asked question) (sent inquiry, isSent bool) {
	answered := make(chan answer, 1)
	id := v.ask(asked, recipient{call: answered})
	return inquiry{v, id, answered}, id != 0
}

// await returns the answer. If ctx ends first, the result is leaving, and the answer may be awaited again.
func (i inquiry) await(ctx context.Context) (told answer, isAnswered bool) {
	select {
	case told := <-i.answered:
		return told, true
	case <-ctx.Done():
		return answer{Result: leaving}, false
	}
}

// leave tells the other replica that nobody waits for the answer, if there was none.
func (i inquiry) leave() { i.stream.leave(i.id, false) }

// remotePlace is the place of a caller in the line of another replica.
type remotePlace struct {
	stream *visitOut
	id     uint64
}

func (v *visitOut) enlist(asked question, into *mailbox) place {
	asked.Kind = enlist
	return remotePlace{stream: v, id: v.ask(asked, recipient{into: into})}
}

func outcomeOf(told answer) outcome {
	result := outcome{result: told.Result, held: told.Held, heldFor: told.HeldFor}
	switch told.Result {
	case done, timedOut, leaving:
	case full:
		if told.Full == nil {
			return outcome{result: declined}
		}
		result.err = fmt.Errorf("wait at another replica: %w", told.Full)
	case renewed:
		result.err = lock.ErrFoundElsewhere
	default:
		result.result = declined
	}
	return result
}

// Leave implements place. Who has the lock is not known here.
func (p remotePlace) Leave() error {
	p.stream.leave(p.id, false)
	return nil
}

// Move implements place.
func (p remotePlace) Move() { p.stream.leave(p.id, true) }

// GiveUp implements place.
func (p remotePlace) GiveUp() *outcome {
	p.stream.outbox.put(question{ID: p.id, Kind: giveUp})
	return nil
}

// Distrust implements place.
func (p remotePlace) Distrust() { p.stream.distrust() }
