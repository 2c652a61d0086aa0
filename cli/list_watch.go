package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/terminal"
)

// flushPeriod is how often changes are written: a terminal does not show more, and each
// write of many rows costs little more than one of one row.
const flushPeriod = 250 * time.Millisecond

// change is what the list says about a lock that has changed.
type change struct {
	*listed
	isGone bool
}

// listFollower keeps what the list has said, and what it has yet to say.
type listFollower struct {
	list *list
	// changed wakes the writer.
	changed chan struct{}

	mu sync.Mutex
	// shown is by the names of the objects in their namespaces: a few dozen bytes each.
	shown map[client.ObjectKey]time.Time
	// pending are to be written, in this order; a later change replaces an earlier one.
	pending map[client.ObjectKey]*change
	order   []client.ObjectKey
}

// follow writes the list and then its changes until ctx ends.
func (l *list) follow(ctx context.Context, source *locks.Source) error {
	follower := &listFollower{
		list: l, changed: make(chan struct{}, 1), shown: map[client.ObjectKey]time.Time{}, pending: map[client.ObjectKey]*change{},
	}
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { failed <- source.Follow(ctx, l.Clock, follower) }()
	err := follower.write(failed)
	cancel()
	return err
}

// write returns when the follower has failed.
func (f *listFollower) write(failed <-chan error) error {
	table := f.list.table()
	table.Columns = slices.Insert(table.Columns, 0, terminal.Column{Header: "NOW"})
	for {
		select {
		case err := <-failed:
			return err
		case <-f.changed:
		}
		if err := f.flush(table); err != nil {
			return err
		}
		timer := f.list.Clock.NewTimer(flushPeriod)
		select {
		case err := <-failed:
			timer.Stop()
			return err
		case <-timer.C():
		}
	}
}

// take returns what is to be written.
func (f *listFollower) take() []*change {
	f.mu.Lock()
	defer f.mu.Unlock()
	changes := make([]*change, 0, len(f.order))
	for _, name := range f.order {
		changes = append(changes, f.pending[name])
	}
	clear(f.pending)
	f.order = f.order[:0]
	return changes
}

// Listed implements [locks.Follower]. Of a later list, only what is new counts.
func (f *listFollower) Listed(all []*v1alpha1.Lock) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rows, present := make([]*listed, 0, len(all)), map[client.ObjectKey]bool{}
	for _, lock := range all {
		rows = append(rows, f.list.rowOf(lock))
		present[client.ObjectKeyFromObject(lock)] = true
	}
	f.list.sort(rows)
	for _, row := range rows {
		f.add(&change{listed: row})
	}
	maps.DeleteFunc(f.shown, func(name client.ObjectKey, _ time.Time) bool { return !present[name] })
}

// Changed implements [locks.Follower].
func (f *listFollower) Changed(lock *v1alpha1.Lock, isGone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(&change{listed: f.list.rowOf(lock), isGone: isGone})
}

// Failed implements [locks.Follower].
func (f *listFollower) Failed(err error) {
	if err != nil {
		fmt.Fprintf(f.list.ErrOut, "note: trying again: %s\n", terminal.Clean(err.Error()))
	}
}

// add has a change written, if the flags select its lock and, in a table, if it is more
// than a renewal. The caller has the mutex.
func (f *listFollower) add(changed *change) {
	name := client.ObjectKey{Namespace: changed.Namespace, Name: changed.Name}
	before, wasShown := f.shown[name]
	switch {
	case changed.isGone && !wasShown:
		return
	case changed.isGone:
		delete(f.shown, name)
	case !f.list.selects(&changed.Row, f.list.Now()):
		return
	case wasShown && before.Equal(changed.Acquired) && f.list.output.isTable():
		return
	default:
		f.shown[name] = changed.Acquired
	}
	if f.pending[name] == nil {
		f.order = append(f.order, name)
	}
	f.pending[name] = changed
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// flush writes what is pending.
func (f *listFollower) flush(table *terminal.Table) error {
	changes := f.take()
	if !f.list.output.isTable() {
		for _, each := range changes {
			if err := f.list.output.printOne(f.list.Out, each.lock); err != nil {
				return err
			}
		}
		return nil
	}
	times := f.list.Times()
	rows := make([][]string, 0, len(changes))
	for _, each := range changes {
		state := "held"
		if each.isGone {
			state = "free"
			each.Expires = time.Time{}
		}
		rows = append(rows, slices.Insert(f.list.cellsOf(each.listed, times), 0, state))
	}
	return table.Write(f.list.Out, rows)
}
