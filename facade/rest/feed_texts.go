package rest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"weak"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/servertime"
)

// publish tells the viewers of changes.
func (f *feed) publish(collected []event) {
	for len(collected) > 0 {
		text, told := f.batchOf(collected)
		f.add(text)
		collected = collected[told:]
	}
}

// batchOf returns a [wire.Changes] as it is sent, and how many of the events are in it.
func (f *feed) batchOf(collected []event) (text []byte, told int) {
	text = append(text, "event: "+wire.EventChanges+"\ndata: {\"now\":\""+f.now()+"\",\"changes\":["...)
	for ; told < len(collected) && len(text) < maxBatchBytes; told++ {
		if told > 0 {
			text = append(text, ',')
		}
		text = append(text, encode(wire.Change{Event: collected[told].name, Lock: describe(collected[told].lock)})...)
	}
	return append(text, "]}\n\n"...), told
}

// add keeps a batch for the viewers. Where all feeds keep too much, those of this one that are behind get the whole state again.
func (f *feed) add(text []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.first < f.next && (f.next-f.first >= keptBatches || f.kept.Load()+int64(len(text)) > MaxKeptBytes-maxPastBytes) {
		f.forgetBatch()
	}
	f.batches[f.next%keptBatches] = slices.Clip(text)
	f.kept.Add(int64(len(text)))
	f.next++
	if f.snapshot != nil && (f.snapshot.position.next < f.first || f.next-f.snapshot.position.next > snapshotFor) {
		f.snapshot = nil
	}
	f.tell()
}

// forgetBatch needs the mutex.
func (f *feed) forgetBatch() {
	oldest := &f.batches[f.first%keptBatches]
	f.kept.Add(-int64(len(*oldest)))
	*oldest = nil
	f.first++
}

// forgetBatches needs the mutex.
func (f *feed) forgetBatches() {
	for f.first < f.next {
		f.forgetBatch()
	}
}

// fail ends the streams of the viewers.
func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.forgetBatches()
	f.past.forget()
	f.tell()
}

// tell needs the mutex.
func (f *feed) tell() {
	close(f.news)
	f.news = make(chan struct{})
}

func (f *feed) now() string { return problems.FormatTime(f.config.Clock.Now()) }

// part is what a viewer is sent next: one thing at a time, since it keeps that for as long as it does not read.
type part struct {
	// snapshot is that to begin with, or nil.
	snapshot *snapshot
	// text is that of past grants, of the lines or of a batch, or nil.
	text []byte
	// now is where the viewer is when it has been sent that, and linesVersion which lines it has.
	now          position
	linesVersion int
	// news is closed when there is more.
	news <-chan struct{}
}

// moreNow is the news of a viewer that has not been sent everything yet.
var moreNow = func() <-chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}()

// since returns what came after a position, and after a version of the lines. The error is that with which the feed
// has ended.
func (f *feed) since(from position, linesVersion int) (part, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	more := part{now: from, linesVersion: linesVersion, news: f.news}
	switch {
	case f.err != nil:
		return part{}, f.err
	case f.history == nil:
		return more, nil
	case from.round != f.round || from.next < f.first:
		if f.snapshot == nil {
			f.snapshot = f.takeSnapshot()
		}
		more.snapshot, more.now, more.linesVersion = f.snapshot, f.snapshot.position, 0
	case from.past < from.pastEnd:
		more.text, more.now.past = f.past.textOf(from.past, from.pastEnd)
	case linesVersion != f.lines.version:
		more.text, more.linesVersion = f.lines.text, f.lines.version
	case from.next < f.next:
		more.text = f.batches[from.next%keptBatches]
		more.now.next++
	}
	if more.now.past < more.now.pastEnd || more.now.next < f.next || more.linesVersion != f.lines.version {
		more.news = moreNow
	}
	return more, nil
}

// takeSnapshot needs the mutex. The locks are sorted without it.
func (f *feed) takeSnapshot() *snapshot {
	held := make([]*v1alpha1.Lock, 0, len(f.history.byEnd))
	for _, each := range f.history.byEnd {
		held = append(held, each.Lock)
	}
	return &snapshot{position: position{round: f.round, next: f.next, pastEnd: f.past.next}, groups: sync.OnceValue(func() (groups []*group) {
		slices.SortFunc(held, func(a, b *v1alpha1.Lock) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Spec.Key, b.Spec.Key), cmp.Compare(a.Spec.Function, b.Spec.Function))
		})
		for some := range slices.Chunk(held, groupedLocks) {
			groups = append(groups, &group{locks: some})
		}
		return groups
	})}
}

// write writes a [wire.Snapshot].
func (s *snapshot) write(out io.Writer, now string) {
	_, _ = io.WriteString(out, "event: "+wire.EventSync+"\ndata: {\"now\":\""+now+"\",\"locks\":[")
	for index, each := range s.groups() {
		if index > 0 {
			_, _ = io.WriteString(out, ",")
		}
		_, _ = out.Write(*each.encoded())
	}
	_, _ = io.WriteString(out, "]}\n\n")
}

// encoded returns the text, which viewers that write at the same time share.
func (g *group) encoded() *[]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.text.Value(); known != nil {
		return known
	}
	described := make([]wire.Lock, 0, groupedLocks)
	for _, each := range g.locks {
		described = append(described, describe(each))
	}
	listed := encode(described)
	text := listed[1 : len(listed)-1]
	g.text = weak.Make(&text)
	return &text
}

// textOf returns an event as it is sent.
func textOf(event string, data any) []byte {
	return slices.Concat([]byte("event: "+event+"\ndata: "), encode(data), []byte("\n\n"))
}

// countLines counts who waits until ctx ends, or at once if that is not known.
func (f *feed) countLines(ctx context.Context) {
	ticker := servertime.Timers(f.config.Clock).NewTicker(countEvery)
	defer ticker.Stop()
	for {
		counted, isComplete, err := f.config.Locks.Lines(ctx, f.caller(), maxCounted)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return
		case err == nil:
			f.setLines(textOf(wire.EventLines, linesOf(counted, isComplete)))
		}
		// Otherwise a replica could not be asked, and the viewers keep what they know.
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// linesOf returns what is told of the lines, the longest first.
func linesOf(counted []lock.Line, isComplete bool) wire.Lines {
	slices.SortFunc(counted, func(a, b lock.Line) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Function, b.Function))
	})
	told := wire.Lines{Lines: []wire.Line{}, IsComplete: isComplete}
	size := 100 // for what is around them
	for _, line := range counted {
		described := wire.Line{Namespace: line.Namespace, Key: line.Key, Function: line.Function, Waiting: line.Waiting}
		if size += len(encode(described)) + 1; size > maxLinesBytes {
			told.IsComplete = false
			break
		}
		told.Lines = append(told.Lines, described)
	}
	return told
}

func (f *feed) setLines(text []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !bytes.Equal(text, f.lines.text) {
		f.lines = told{text, f.lines.version + 1}
		f.tell()
	}
}
