package line

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// What one answer tells at most. A message of 4 MiB would break the stream, and with it the waits of all callers
// between two replicas.
const (
	maxListed = 5000
	// maxListedBytes bounds the texts of waiters as they are encoded.
	maxListedBytes = 1 << 20
)

// Waiters implements [lock.LineReader]. It asks the home of the line, or all replicas about a namespace.
func (l *Line) Waiters(ctx context.Context, namespace string, key v1alpha1.FullKey, limit int) (waiters []lock.Waiter, isComplete bool, err error) {
	isComplete = true
	err = l.ask(ctx, question{Kind: list, Namespace: namespace, Key: key, Limit: limit}, func(told answer) {
		waiters = append(waiters, told.Waiters...)
		isComplete = isComplete && !told.IsPart
	})
	if err != nil {
		return nil, false, err
	}
	slices.SortStableFunc(waiters, func(a, b lock.Waiter) int {
		return cmp.Or(cmp.Compare(a.FullKey(), b.FullKey()), cmp.Compare(a.Place, b.Place))
	})
	return waiters[:min(limit, len(waiters))], isComplete && len(waiters) <= limit, nil
}

// Lines implements [lock.LineCounter]. It asks the home of the line, or all replicas about a namespace.
func (l *Line) Lines(ctx context.Context, namespace string, key v1alpha1.FullKey, limit int) (lines []lock.Line, isComplete bool, err error) {
	isComplete = true
	err = l.ask(ctx, question{Kind: count, Namespace: namespace, Key: key, Limit: limit}, func(told answer) {
		lines = append(lines, told.Lines...)
		isComplete = isComplete && !told.IsPart
	})
	if err != nil {
		return nil, false, err
	}
	lines = merged(lines)
	return lines[:min(limit, len(lines))], isComplete && len(lines) <= limit, nil
}

var _ lock.LineHome = (*Line)(nil)

// IsHome implements [lock.LineHome].
func (l *Line) IsHome(namespace string, key v1alpha1.FullKey) bool {
	return l.members.view().homeOf(types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}) == l.self
}

// merged returns one line for each lock: one that moves from one home to another is at both for a moment.
func merged(lines []lock.Line) []lock.Line {
	slices.SortFunc(lines, func(a, b lock.Line) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.FullKey(), b.FullKey()))
	})
	merged := lines[:0]
	for _, line := range lines {
		if last := len(merged) - 1; last >= 0 && merged[last].Namespace == line.Namespace && merged[last].FullKey() == line.FullKey() {
			merged[last].Waiting += line.Waiting
			continue
		}
		merged = append(merged, line)
	}
	return merged
}

// ask asks the home of the lock that the question is about, or all replicas if it names none.
func (l *Line) ask(ctx context.Context, asked question, told func(answer)) error {
	view := l.members.view()
	names := view.connected
	if asked.Key != "" {
		names = []string{view.homeOf(types.NamespacedName{Namespace: asked.Namespace, Name: asked.Key.ObjectName()})}
	}
	ctx, cancel := context.WithTimeout(ctx, lock.OperationTimeout)
	defer cancel()
	for _, name := range names {
		if name == l.self {
			here, err := tell(ctx, l.Local, asked)
			if err != nil {
				return err
			}
			told(here)
			continue
		}
		stream := l.members.streamTo(name)
		if stream == nil {
			return errUnanswered
		}
		inquiry, isSent := stream.inquire(asked)
		if !isSent {
			return errUnanswered
		}
		there, _ := inquiry.await(ctx)
		inquiry.leave()
		if there.Result != done {
			return errUnanswered
		}
		told(there)
	}
	return nil
}

var errUnanswered = fmt.Errorf("%w: another replica did not tell who waits there", lock.ErrUnavailable)

// list answers another replica that asks who waits here, or how many.
func (v *visit) list(ctx context.Context, asked question) answer {
	asked.Limit = min(asked.Limit, maxListed)
	told, err := tell(ctx, v.host.local, asked)
	if err != nil {
		return answer{ID: asked.ID, Result: declined}
	}
	waiters, lines := fitting(told.Waiters, waiterBytes), fitting(told.Lines, lineBytes)
	told.IsPart = told.IsPart || len(lines) < len(told.Lines) || len(waiters) < len(told.Waiters)
	told.ID, told.Result, told.Waiters, told.Lines = asked.ID, done, waiters, lines
	return told
}

func tell(ctx context.Context, local Local, asked question) (answer, error) {
	if asked.Kind == count {
		lines, isComplete, err := local.Lines(ctx, asked.Namespace, asked.Key, asked.Limit)
		return answer{Lines: lines, IsPart: !isComplete}, err
	}
	waiters, isComplete, err := local.Waiters(ctx, asked.Namespace, asked.Key, asked.Limit)
	return answer{Waiters: waiters, IsPart: !isComplete}, err
}

// fitting returns as many of the first as one answer has room for.
func fitting[T any](all []T, bytes func(*T) int) []T {
	room := maxListedBytes
	for index := range all {
		if room -= bytes(&all[index]); room < 0 {
			return all[:index]
		}
	}
	return all
}

// In an answer, JSON writes a byte of a text in up to six, such as \u003c.
const perByte = 6

// waiterBytes is how long a waiter can be in an answer.
func waiterBytes(waiter *lock.Waiter) int {
	const others = 400
	texts := len(waiter.Namespace) + len(waiter.Function) + len(waiter.Key) + len(waiter.Holder) + len(waiter.Reason) + len(waiter.Door)
	if ref := waiter.HolderRef; ref != nil {
		texts += len(ref.APIVersion) + len(ref.Kind) + len(ref.Name) + len(ref.UID)
	}
	return others + perByte*texts
}

// lineBytes is how long a line can be in an answer.
func lineBytes(line *lock.Line) int {
	const others = 100
	return others + perByte*(len(line.Namespace)+len(line.Function)+len(line.Key))
}
