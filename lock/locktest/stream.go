package locktest

import (
	"context"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// stream receives every state of one lock or, if the name is empty, of a namespace; of all
// locks if both are empty. The mutex of the backend guards sending and closing.
type stream struct {
	name    types.NamespacedName
	changes chan lock.Change
}

// ListPage implements [lock.Pager].
func (b *Backend) ListPage(ctx context.Context, namespace string, request lock.PageRequest) (lock.Page, error) {
	held, err := b.List(ctx, namespace, lock.Filter{})
	if err != nil {
		return lock.Page{}, err
	}
	return lock.PageOf(held, request)
}

// Stream implements [lock.Streamer]. Like [Backend.Watch] it shows expired locks until they are taken
// over.
func (b *Backend) Stream(ctx context.Context, namespace string, key v1alpha1.FullKey) (lock.Stream, error) {
	name := types.NamespacedName{Namespace: namespace}
	if key != "" {
		name.Name = key.ObjectName()
	}
	return do(ctx, b, Call{Verb: Watch, Namespace: namespace, Key: key}, func(Hooks) (lock.Stream, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		added := &stream{name: name, changes: make(chan lock.Change, lock.StreamBuffer)}
		begun := lock.Stream{Version: strconv.FormatInt(b.version, 10), Changes: added.changes}
		for _, e := range b.entries {
			if e.lock != nil && added.isOf(e.name) {
				begun.Present = append(begun.Present, e.lock)
			}
		}
		b.streams[added] = struct{}{}
		context.AfterFunc(ctx, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.endStream(added)
		})
		return begun, nil
	})
}

func (s *stream) isOf(name types.NamespacedName) bool {
	return s.name.Namespace == "" || s.name.Namespace == name.Namespace && (s.name.Name == "" || s.name.Name == name.Name)
}

// sendToStreams needs the mutex. A receiver that is too slow loses its stream, not a change.
func (b *Backend) sendToStreams(name types.NamespacedName, change lock.Change) {
	for each := range b.streams {
		if !each.isOf(name) {
			continue
		}
		select {
		case each.changes <- change:
		default:
			b.endStream(each)
		}
	}
}

// endStream needs the mutex.
func (b *Backend) endStream(ended *stream) {
	if _, ok := b.streams[ended]; ok {
		delete(b.streams, ended)
		close(ended.changes)
	}
}
