package locks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
)

func named(name, version string) v1alpha1.Lock {
	return v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", Operation: metav1.ManagedFieldsOperationUpdate}}},
		Spec:       v1alpha1.LockSpec{Key: name},
	}
}

// server answers lists by pages, and watches one after the other.
type server struct {
	// lists are the answers; after the last, lists fail.
	lists   []func(*client.ListOptions, *v1alpha1.LockList) error
	watches []func(from string) (watch.Interface, error)
	done    func()
}

func (s *server) source() *locks.Source {
	return &locks.Source{Cluster: interceptor.NewClient(fake.NewClientBuilder().WithScheme(session.Scheme).Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if len(s.lists) == 0 {
				return errors.New("no more lists")
			}
			answer := s.lists[0]
			s.lists = s.lists[1:]
			page, ok := list.(*v1alpha1.LockList)
			if !ok {
				return errors.New("no list of locks")
			}
			return answer(new(client.ListOptions).ApplyOptions(options), page)
		},
		Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			if len(s.watches) == 0 {
				s.done()
				return nil, errors.New("no more watches")
			}
			answer := s.watches[0]
			s.watches = s.watches[1:]
			return answer(new(client.ListOptions).ApplyOptions(options).Raw.ResourceVersion)
		},
	})}
}

// page checks from where a page is asked for, and answers it.
func page(t *testing.T, want, next, version string, names ...string) func(*client.ListOptions, *v1alpha1.LockList) error {
	t.Helper()
	return func(options *client.ListOptions, list *v1alpha1.LockList) error {
		if options.Limit != locks.PageSize || options.Continue != want {
			t.Errorf("asked for %d locks from %q, want %d from %q", options.Limit, options.Continue, locks.PageSize, want)
		}
		for _, name := range names {
			list.Items = append(list.Items, named(name, "1"))
		}
		list.Continue, list.ResourceVersion = next, version
		return nil
	}
}

func TestListAsksForPages(t *testing.T) {
	s := &server{lists: []func(*client.ListOptions, *v1alpha1.LockList) error{page(t, "", "two", "5", "a", "b"), page(t, "two", "", "5", "c")}}
	var found []string
	all, version, err := s.source().List(t.Context())
	for _, lock := range all {
		found = append(found, lock.Name)
		if lock.ManagedFields != nil {
			t.Error("managed fields are kept")
		}
	}
	if err != nil || version != "5" || !slices.Equal(found, []string{"a", "b", "c"}) {
		t.Errorf("found %v at %q, %v", found, version, err)
	}
}

// recorder writes down what it is told.
type recorder struct{ told []string }

func (r *recorder) Listed(all []*v1alpha1.Lock) {
	for _, lock := range all {
		r.told = append(r.told, "listed "+lock.Name)
	}
}
func (r *recorder) Changed(lock *v1alpha1.Lock, isGone bool) {
	r.told = append(r.told, fmt.Sprint("changed ", lock.Name, isGone, lock.ManagedFields == nil))
}

func (r *recorder) Failed(err error) {
	if err != nil {
		r.told = append(r.told, "failed")
	}
}

// instant is a clock whose timers are over at once.
type instant struct{ clock.RealClock }

func (instant) NewTimer(time.Duration) clock.Timer { return clock.RealClock{}.NewTimer(0) }

func TestFollow(t *testing.T) {
	events := func(want string, each ...watch.Event) func(string) (watch.Interface, error) {
		return func(from string) (watch.Interface, error) {
			if from != want {
				t.Errorf("watches from %q, want %q", from, want)
			}
			stream := watch.NewFakeWithChanSize(len(each), false)
			for _, event := range each {
				stream.Action(event.Type, event.Object)
			}
			stream.Stop()
			return stream, nil
		}
	}
	gone := apierrors.NewResourceExpired("too old").Status()
	added, deleted, bookmark := named("a", "6"), named("a", "7"), named("", "9")
	ctx, cancel := context.WithCancel(t.Context())
	s := &server{
		done:  cancel,
		lists: []func(*client.ListOptions, *v1alpha1.LockList) error{page(t, "", "", "5", "x"), page(t, "", "", "20", "y")},
		watches: []func(string) (watch.Interface, error){
			events("5", watch.Event{Type: watch.Added, Object: &added}, watch.Event{Type: watch.Deleted, Object: &deleted}),
			events("7", watch.Event{Type: watch.Bookmark, Object: &bookmark}),
			func(string) (watch.Interface, error) { return nil, errors.New("connection refused") },
			events("9", watch.Event{Type: watch.Error, Object: &gone}),
			events("20"),
		},
	}
	told := new(recorder)
	if err := s.source().Follow(ctx, instant{}, told); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	want := []string{"listed x", "changed afalse true", "changed atrue true", "failed", "listed y"}
	if !slices.Equal(told.told, want) {
		t.Errorf("told %q, want %q", told.told, want)
	}
}

func TestFollowReturnsTheFailureOfTheFirstList(t *testing.T) {
	s := &server{lists: []func(*client.ListOptions, *v1alpha1.LockList) error{func(*client.ListOptions, *v1alpha1.LockList) error {
		return apierrors.NewForbidden(v1alpha1.Resource("locks"), "", nil)
	}}}
	if err := s.source().Follow(t.Context(), instant{}, new(recorder)); !apierrors.IsForbidden(err) {
		t.Errorf("ended with %v", err)
	}
}
