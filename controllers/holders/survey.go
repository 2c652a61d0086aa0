package holders

import (
	"context"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
)

const (
	// surveyPage is how many objects one request lists.
	surveyPage = 500
	// pageWorth is how many reads cost as much as a page. Fewer holders are read one by one, and
	// so are those of a namespace with many more objects than holders.
	pageWorth = 20
)

// kindIn is a kind of object in a namespace.
type kindIn struct{ namespace, apiVersion, kind string }

// survey reads the holders without a watch: all, or those that never were. A holder for which
// there is room for a watch by now gets one instead.
func (w *holderWatches) survey(ctx context.Context, isRound bool) {
	for kind, group := range w.unwatched(isRound) {
		if len(group) >= pageWorth && w.list(ctx, kind, group) {
			continue
		}
		w.readEach(ctx, group)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, watched := range w.byHolder {
		if watched.cancel == nil && !watched.isRead && watched.how == "" {
			w.signal() // It was added since, or could not be read.
			return
		}
	}
}

// unwatched returns the holders to read, by kind and namespace.
func (w *holderWatches) unwatched(isRound bool) map[kindIn]map[holder]*holderWatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	groups := map[kindIn]map[holder]*holderWatch{}
	for of, watched := range w.byHolder {
		if watched.cancel != nil || watched.how != "" || !isRound && watched.isRead || w.watch(of, watched) {
			continue
		}
		kind := kindIn{namespace: of.namespace, apiVersion: of.ref.APIVersion, kind: of.ref.Kind}
		if groups[kind] == nil {
			groups[kind] = map[holder]*holderWatch{}
		}
		groups[kind][of] = watched
	}
	return groups
}

// list reads the holders of one kind and namespace by a list of all such objects, page by page. It
// returns false if they are to be read one by one: the operator may not list them, or there are
// many others. The list is that of etcd at one moment: a holder that it lacks is gone.
func (w *holderWatches) list(ctx context.Context, kind kindIn, group map[holder]*holderWatch) bool {
	byName := map[string][]holder{}
	for of := range group {
		byName[of.ref.Name] = append(byName[of.ref.Name], of)
	}
	ends := map[holder]string{}
	for next, isFirst := "", true; isFirst || next != ""; isFirst = false {
		if !w.awaitTurn(ctx) || !w.isLeader() {
			return true
		}
		page, err := w.listPage(ctx, kind, next)
		switch {
		case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
			return false
		case err != nil && unlessFutile(err) == nil:
			for _, watched := range group {
				w.settle(watched, "") // The API server does not serve the kind, which proves nothing.
			}
			return true
		case err != nil:
			logf.FromContext(ctx).V(1).Info("Could not list the objects that hold Locks, will try again", "reason", err.Error())
			return true
		}
		next = page.GetContinue()
		if left := page.GetRemainingItemCount(); isFirst && left != nil && *left/surveyPage*pageWorth > int64(len(group)) {
			return false
		}
		_ = apimeta.EachListItem(page, func(item runtime.Object) error { // It fails for no list.
			if named, ok := item.(client.Object); ok {
				for _, of := range byName[named.GetName()] {
					ends[of] = howEnded(of, item)
				}
			}
			return nil
		})
	}
	for of, watched := range group {
		how, isListed := ends[of]
		if !isListed {
			how = howDeleted
		}
		w.settle(watched, how)
	}
	return true
}

func (w *holderWatches) listPage(ctx context.Context, kind kindIn, next string) (client.ObjectList, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	page := listOf(holder{ref: v1alpha1.HolderReference{APIVersion: kind.apiVersion, Kind: kind.kind}})
	return page, w.client.List(ctx, page, client.InNamespace(kind.namespace), client.Limit(surveyPage), client.Continue(next))
}

// readEach reads the holders one by one.
func (w *holderWatches) readEach(ctx context.Context, group map[holder]*holderWatch) {
	var reads errgroup.Group
	reads.SetLimit(maxReads)
	for of, watched := range group {
		if !w.awaitTurn(ctx) || !w.isLeader() {
			break
		}
		reads.Go(func() error {
			how, err := w.read(ctx, of)
			if unlessFutile(err) == nil {
				w.settle(watched, how)
			}
			return nil
		})
	}
	_ = reads.Wait() // None returns an error.
}

// settle records that the holder was read.
func (w *holderWatches) settle(watched *holderWatch, how string) {
	if how != "" {
		w.ended(watched, how)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	watched.isRead = true
}
