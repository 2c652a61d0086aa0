// Package locks reads the locks of an API server for people: page by page, by watch, and
// with the Jobs that wait for them.
package locks

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// PageSize is how many objects a list asks for at a time.
const PageSize = 500

// retryPause is how long a follower waits before it asks again after a failure.
const retryPause = time.Second

// Source is where locks come from.
type Source struct {
	Cluster client.WithWatch
	// Namespace of the locks. Empty means all.
	Namespace string
	// Fields selects locks. Nil means all.
	Fields fields.Selector
}

// Follower learns of locks. Its methods are called one at a time, and may keep the locks.
type Follower interface {
	// Listed shows all locks that are stored, in place of those that were shown before.
	Listed(all []*v1alpha1.Lock)
	// Changed shows a lock that was written or deleted.
	Changed(lock *v1alpha1.Lock, isGone bool)
	// Failed says why what was shown may be out of date. Nil says that it no longer is.
	Failed(err error)
}

// List returns all locks that are stored, expired ones included, without their managed fields,
// and the resourceVersion of the list.
func (s *Source) List(ctx context.Context) (all []*v1alpha1.Lock, version string, err error) {
	options := s.options("")
	options.Limit = PageSize
	for {
		var page v1alpha1.LockList
		if err := s.Cluster.List(ctx, &page, options); err != nil {
			return nil, "", err
		}
		for index := range page.Items {
			// Not the address within the page, which would keep the whole page.
			item := page.Items[index]
			item.ManagedFields = nil
			all = append(all, &item)
		}
		if page.Continue == "" {
			return all, page.ResourceVersion, nil
		}
		options.Continue = page.Continue
	}
}

// Follow lists the locks and then watches them until ctx ends, whose error it returns. A
// failure of the first list is returned, too; after that, Follow tries again every
// second. It lists again where the API server has forgotten from where to go on.
func (s *Source) Follow(ctx context.Context, timers clock.WithTicker, follower Follower) error {
	for isFirst := true; ; isFirst = false {
		all, version, err := s.List(ctx)
		switch {
		case err == nil:
			follower.Listed(all)
			s.watch(ctx, timers, version, follower)
		case isFirst:
			return err
		default:
			follower.Failed(err)
			pause(ctx, timers)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// watch returns when ctx ends or a new list is necessary.
func (s *Source) watch(ctx context.Context, timers clock.WithTicker, version string, follower Follower) {
	for ctx.Err() == nil {
		changes, err := s.Cluster.Watch(ctx, &v1alpha1.LockList{}, s.options(version))
		if isForgotten(err) {
			return
		}
		if err == nil {
			follower.Failed(nil)
			version, err = receive(changes, version, follower)
			changes.Stop()
			if isForgotten(err) {
				return
			}
		}
		if err != nil && ctx.Err() == nil {
			follower.Failed(err)
			pause(ctx, timers)
		}
	}
}

// receive passes changes on until there are no more, and returns the last resourceVersion.
func receive(changes watch.Interface, version string, follower Follower) (last string, err error) {
	for event := range changes.ResultChan() {
		if event.Type == watch.Error {
			return version, apierrors.FromObject(event.Object)
		}
		changed, err := apimeta.Accessor(event.Object)
		if err != nil {
			return version, err
		}
		version = changed.GetResourceVersion()
		if lock, ok := event.Object.(*v1alpha1.Lock); ok && event.Type != watch.Bookmark {
			lock.ManagedFields = nil
			follower.Changed(lock, event.Type == watch.Deleted)
		}
	}
	return version, nil
}

func (s *Source) options(version string) *client.ListOptions {
	return &client.ListOptions{
		Namespace:     s.Namespace,
		FieldSelector: s.Fields,
		Raw:           &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: version != ""},
	}
}

func isForgotten(err error) bool {
	return apierrors.IsGone(err) || apierrors.IsResourceExpired(err)
}

func pause(ctx context.Context, timers clock.WithTicker) {
	timer := timers.NewTimer(retryPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}
