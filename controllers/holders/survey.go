package holders

import (
	"context"
	"errors"

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
	for kind, group := range w.unwatched(isRound) { // a watch outlives this survey
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
		if watched.cancel != nil || watched.how != "" || !isRound && watched.isRead {
			continue
		}
		if w.watch(of, watched) {
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

// errTooLong says that a list costs more than the reads that it would replace.
var errTooLong = errors.New("most objects of the list hold no Locks")

// list reads the holders of one kind and namespace by a list of all such objects. It returns false
// if they are to be read one by one: the operator may not list them, or there are many others.
func (w *holderWatches) list(ctx context.Context, kind kindIn, group map[holder]*holderWatch) bool {
	hows, err := w.listed(ctx, kind, group)
	switch {
	case errors.Is(err, errTooLong), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return false
	case unlessFutile(err) != nil:
		logf.FromContext(ctx).V(1).Info("Could not list the objects that hold Locks, will try again", "reason", err.Error())
		return true
	}
	for of, watched := range group {
		// An API server that does not serve the kind proves nothing.
		how, isListed := hows[of]
		if !isListed && err == nil {
			how = howDeleted
		}
		w.settle(watched, how)
	}
	return true
}

// listed returns how the listed holders ended, "" for those that have not. The list is that of etcd
// at one moment: a holder that it lacks is gone.
func (w *holderWatches) listed(ctx context.Context, kind kindIn, group map[holder]*holderWatch) (map[holder]string, error) {
	byName := map[string][]holder{}
	for of := range group {
		byName[of.ref.Name] = append(byName[of.ref.Name], of)
	}
	hows := map[holder]string{}
	for next, isFirst := "", true; isFirst || next != ""; isFirst = false {
		if !w.awaitTurn(ctx) {
			return nil, ctx.Err()
		}
		page, err := w.listPage(ctx, kind, next)
		if err != nil {
			return nil, err
		}
		next = page.GetContinue()
		if left := page.GetRemainingItemCount(); isFirst && left != nil && *left/surveyPage*pageWorth > int64(len(group)) {
			return nil, errTooLong
		}
		_ = apimeta.EachListItem(page, func(item runtime.Object) error { // It fails for no list.
			if named, ok := item.(client.Object); ok {
				for _, of := range byName[named.GetName()] {
					hows[of] = howEnded(of, item)
				}
			}
			return nil
		})
	}
	return hows, nil
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
