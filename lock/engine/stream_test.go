package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// source is what a stream lists and watches.
type source struct {
	// fail returns the error of a request, or nil.
	fail    func() error
	items   []v1alpha1.Lock
	watches chan *watch.FakeWatcher
	// asked are the options of the last watch.
	asked metav1.ListOptions
}

func newSource() *source {
	return &source{fail: func() error { return nil }, watches: make(chan *watch.FakeWatcher, 10)}
}

func (s *source) List(metav1.ListOptions) (runtime.Object, error) {
	return &v1alpha1.LockList{Items: s.items}, s.fail()
}

func (s *source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	s.asked = options
	if err := s.fail(); err != nil {
		return nil, err
	}
	opened := watch.NewFake()
	s.watches <- opened
	return opened, nil
}

func streamOf(source cache.ListerWatcher) (*engine.WatchStream, cache.ListerWatcherWithContext) {
	stream := engine.NewWatchStream(clock.RealClock{}, logr.Discard())
	wrapped := stream.Wrap(source)
	return stream, wrapped
}

// A list of a million locks may take longer than a watch lasts, and must not begin anew then.
func TestAWatchThatBeginsWithAListMayTakeLong(t *testing.T) {
	for hasList, want := range map[bool]int64{true: 3600, false: 300} {
		source := newSource()
		_, from := streamOf(source)
		opened, err := from.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: new(hasList), TimeoutSeconds: new(int64(300))})
		if err != nil {
			t.Fatal(err)
		}
		opened.Stop()
		if got := *source.asked.TimeoutSeconds; got != want {
			t.Errorf("with a list %t: %d s, want %d", hasList, got, want)
		}
	}
}

func TestAStreamListsAndWatchesSoonAfterAnOutage(t *testing.T) {
	requests := map[string]func(context.Context, cache.ListerWatcherWithContext) error{
		"list": func(ctx context.Context, from cache.ListerWatcherWithContext) error {
			_, err := from.ListWithContext(ctx, metav1.ListOptions{})
			return err
		},
		"watch": func(ctx context.Context, from cache.ListerWatcherWithContext) error {
			opened, err := from.WatchWithContext(ctx, metav1.ListOptions{})
			if err == nil {
				opened.Stop()
			}
			return err
		},
	}
	failures := map[string]error{
		"refused connections":          errRefused,
		"answers to come in one hour":  apierrors.NewTooManyRequests("later", 3600),
		"answers to come in a moment":  apierrors.NewTooManyRequests("later", 1),
		"answers without any such bid": apierrors.NewInternalError(errLostAnswer),
	}
	for title, request := range requests {
		for cause, failure := range failures {
			bubbleOf(t, title+" after "+cause, func(t *testing.T) {
				const outage = 10 * time.Minute
				source := newSource()
				begun := time.Now()
				source.fail = func() error {
					if time.Since(begun) < outage {
						return failure
					}
					return nil
				}
				_, from := streamOf(source)
				if err := request(t.Context(), from); err != nil {
					t.Fatal(err)
				}
				if late := time.Since(begun) - outage; late > 2*time.Second {
					t.Errorf("requested %v after the end of the outage", late)
				}
			})
		}
	}
	bubbleOf(t, "unless it was stopped", func(t *testing.T) {
		source := newSource()
		source.fail = func() error { return errRefused }
		_, from := streamOf(source)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := requests["list"](ctx, from); !errors.Is(err, errRefused) {
			t.Errorf("got %v", err)
		}
	})
}

// The informer lists anew when what it asks for is no longer there.
func TestAStreamLeavesToItsInformerWhatOnlyTheInformerCanMend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newSource()
		source.fail = func() error { return apierrors.NewResourceExpired("too old") }
		_, from := streamOf(source)
		begun := time.Now()
		if _, err := from.WatchWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) || time.Since(begun) > 0 {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
	})
}

func TestAStreamIsOpenWhileItsWatchIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newSource()
		stream, from := streamOf(source)
		mustBe := func(isOpen bool, when string) {
			t.Helper()
			synctest.Wait()
			if stream.IsOpen() != isOpen {
				t.Errorf("open: %v %s", stream.IsOpen(), when)
			}
		}
		open := func(options metav1.ListOptions) (watch.Interface, *watch.FakeWatcher) {
			t.Helper()
			opened, err := from.WatchWithContext(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			return opened, <-source.watches
		}
		mustBe(false, "before the first watch")
		opened, sender := open(metav1.ListOptions{})
		mustBe(true, "after the first watch")
		go sender.Modify(&v1alpha1.Lock{})
		if event := <-opened.ResultChan(); event.Type != watch.Modified {
			t.Errorf("got %+v", event)
		}
		sender.Stop()
		mustBe(false, "after the API server has ended it")
		if _, ok := <-opened.ResultChan(); ok {
			t.Error("the informer does not see the end")
		}

		opened, sender = open(metav1.ListOptions{SendInitialEvents: new(true)})
		mustBe(false, "before the end of the initial list")
		end := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		go sender.Action(watch.Bookmark, end)
		if shown, ok := (<-opened.ResultChan()).Object.(*v1alpha1.Lock); !ok || shown.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Error("the informer does not learn of the end of the initial list")
		}
		mustBe(true, "after the end of the initial list")
		go sender.Modify(&v1alpha1.Lock{}) // The informer no longer receives.
		synctest.Wait()
		opened.Stop()
		mustBe(false, "after the informer has stopped")
	})
}

func TestAnInformerGetsNoAnnotationsOfUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{
			Annotations:   map[string]string{"example.com/note": "a", v1alpha1.AcquisitionAnnotation: "b"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		}}
		mustBeStripped := func(object any, how string) {
			t.Helper()
			shown, ok := object.(*v1alpha1.Lock)
			if !ok || !rules.IsStripped(shown) || shown.ManagedFields != nil || shown.Annotations["example.com/note"] != "" ||
				shown.Annotations[v1alpha1.AcquisitionAnnotation] != "b" {
				t.Errorf("%s: %+v", how, object)
			}
		}
		source := newSource()
		source.items = []v1alpha1.Lock{*whole.DeepCopy()}
		_, from := streamOf(source)
		list, err := from.ListWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		page, ok := list.(*v1alpha1.LockList)
		if !ok || len(page.Items) != 1 {
			t.Fatalf("listed %+v", list)
		}
		mustBeStripped(&page.Items[0], "listed")
		opened, err := from.WatchWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(opened.Stop)
		sender := <-source.watches
		for _, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
			go sender.Action(kind, whole.DeepCopy())
			mustBeStripped((<-opened.ResultChan()).Object, string(kind))
		}
	})
}

// An engine that watches locks one by one trusts what it is shown only while each watch is open.
func TestAStreamOfSeveralInformersIsOpenWhileAllWatchesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := engine.NewWatchStream(clock.RealClock{}, logr.Discard())
		mustBe := func(isOpen bool, when string) {
			t.Helper()
			synctest.Wait()
			if stream.IsOpen() != isOpen {
				t.Errorf("open: %v %s", stream.IsOpen(), when)
			}
		}
		add := func() (list func(), open func() *watch.FakeWatcher, forget func()) {
			source := newSource()
			part, forget := stream.NewPart()
			from := part.Wrap(source)
			list = func() {
				if _, err := from.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			open = func() *watch.FakeWatcher {
				opened, err := from.WatchWithContext(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(opened.Stop)
				return <-source.watches
			}
			return list, open, forget
		}
		_, openFirst, forgetFirst := add()
		first := openFirst()
		mustBe(true, "with one watch")
		listSecond, openSecond, forgetSecond := add()
		mustBe(true, "with an informer that has shown nothing yet")
		listSecond()
		mustBe(false, "with one that has listed, and does not watch")
		second := openSecond()
		mustBe(true, "with two watches")
		first.Stop()
		mustBe(false, "with one of two watches")
		openFirst()
		second.Stop()
		mustBe(false, "with the other of two watches")
		forgetSecond()
		mustBe(true, "without the informer whose watch is closed")
		openSecond()
		forgetFirst()
		mustBe(false, "without informers")
	})
}
