package compact_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/engine/compact"
)

// started returns an informer of the locks of a fake watch, which begins with count locks.
func started(t *testing.T, count int, handlers ...cache.ResourceEventHandler) (*compact.Informer, *watch.FakeWatcher) {
	t.Helper()
	changes := watch.NewFake()
	source := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.LockList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			for number := range count {
				list.Items = append(list.Items, *usual(number))
			}
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil {
				return nil, fmt.Errorf("no streams of lists here")
			}
			return changes, nil
		},
	}
	made := compact.NewInformer(cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, unsupported{}), &v1alpha1.Lock{}, 0,
		compact.Indexers(cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})))
	err := made.AddIndexers(cache.Indexers{"owner": func(object any) ([]string, error) {
		return []string{object.(*v1alpha1.Lock).Spec.Owner}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, handler := range handlers {
		if _, err := made.AddEventHandler(handler); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		made.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	if !cache.WaitForCacheSync(t.Context().Done(), made.HasSynced) {
		t.Fatal("it has not synced")
	}
	return made, changes
}

// unsupported says that a source does not stream lists.
type unsupported struct{}

func (unsupported) IsWatchListSemanticsUnSupported() bool { return true }

// raw takes locks as they are kept.
type raw struct{ shown chan any }

func (r raw) TakesCompactLocks()       {}
func (r raw) OnAdd(object any, _ bool) { r.shown <- object }
func (r raw) OnUpdate(_, object any)   { r.shown <- object }
func (r raw) OnDelete(object any)      { r.shown <- object }

func next[T any](t *testing.T, from chan any) T {
	t.Helper()
	select {
	case object := <-from:
		typed, ok := object.(T)
		if !ok {
			t.Fatalf("got a %T", object)
		}
		return typed
	case <-time.After(time.Minute):
		t.Fatal("nothing was shown")
	}
	panic("unreachable")
}

func TestReadersAndHandlersGetLocks(t *testing.T) {
	full, kept := make(chan any, 10), raw{make(chan any, 10)}
	informer, changes := started(t, 1, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { full <- object },
		UpdateFunc: func(before, object any) { full <- before; full <- object },
		DeleteFunc: func(object any) { full <- object },
	}, kept)
	if got := next[*v1alpha1.Lock](t, full); got.Spec.Owner != usual(0).Spec.Owner {
		t.Errorf("a handler got %+v", got)
	}
	if got, all := next[*compact.Lock](t, kept.shown), compact.All(informer); len(all) != 1 || all[0] != got {
		t.Errorf("a handler of compact locks got %p, and the store has %v", got, all)
	}
	checkReaders(t, informer)
	renewed := usual(0)
	renewed.ResourceVersion, renewed.Spec.Reason = "200000000", "renewed"
	changes.Modify(renewed)
	if before, now := next[*v1alpha1.Lock](t, full), next[*v1alpha1.Lock](t, full); before.Spec.Reason != "" || now.Spec.Reason != "renewed" {
		t.Errorf("changed from %q to %q", before.Spec.Reason, now.Spec.Reason)
	}
	changes.Delete(renewed)
	if got := next[*v1alpha1.Lock](t, full); got.Spec.Reason != "renewed" {
		t.Errorf("deleted: %+v", got)
	}
	if left := compact.All(informer); len(left) != 0 {
		t.Errorf("%d are left", len(left))
	}
}

func checkReaders(t *testing.T, informer *compact.Informer) {
	t.Helper()
	found, err := informer.GetIndexer().ByIndex("owner", usual(0).Spec.Owner)
	if err != nil || len(found) != 1 || found[0].(*v1alpha1.Lock).Name != usual(0).Name {
		t.Errorf("found by index: %v, %v", found, err)
	}
	found, err = informer.GetIndexer().ByIndex(cache.NamespaceIndex, "payments")
	if err != nil || len(found) != 1 {
		t.Errorf("found by namespace: %v, %v", found, err)
	}
	got, exists, err := informer.GetStore().GetByKey("payments/" + usual(0).Name)
	if lock, isLock := got.(*v1alpha1.Lock); !isLock || !exists || err != nil || lock.UID != usual(0).UID {
		t.Errorf("the store has %v, %t, %v", got, exists, err)
	}
}

// What handlers ask for at once is not decoded for each of them, and does not stay for ever.
func TestOnlyTheLatestLocksAreKeptInFull(t *testing.T) {
	informer, _ := started(t, 2000)
	shared := 0
	for _, lock := range compact.All(informer) {
		if lock.Full() == lock.Full() { //nolint:staticcheck // a lock that is decoded is another one each time
			shared++
		}
	}
	if shared == 0 || shared > 1000 {
		t.Errorf("%d locks are kept in full", shared)
	}
}
