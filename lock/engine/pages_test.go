package engine_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// endless answers with one chunk after the other, also when its caller has gone.
type endless struct {
	*etcd
	listed func()
	lists  *int
}

func (e endless) List(context.Context, metav1.ListOptions) (*v1alpha1.LockList, error) {
	*e.lists++
	e.listed()
	return &v1alpha1.LockList{ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: fmt.Sprint(*e.lists)}}, nil
}

func TestAPageWhoseCallerHasGoneReadsNoOtherChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		etcd, lists := newEtcd(), 0
		running := startWith(t, engine.Options{
			Objects: func(string) engine.Objects { return endless{etcd, cancel, &lists} }, Limits: rules.DefaultLimits(),
		})
		if _, err := running.ListPage(ctx, "default", lock.PageRequest{Prefix: "a", Limit: 1}); !errors.Is(err, context.Canceled) || lists != 1 {
			t.Errorf("%d lists, %v", lists, err)
		}
	})
}

// inVersion answers lists with a resourceVersion, and records what each asked for.
type inVersion struct {
	*etcd
	version string
	asked   *[]metav1.ListOptions
}

func (v inVersion) List(_ context.Context, options metav1.ListOptions) (*v1alpha1.LockList, error) {
	*v.asked = append(*v.asked, options)
	return &v1alpha1.LockList{ListMeta: metav1.ListMeta{ResourceVersion: v.version}}, nil
}

// continueFrom returns the position of a page in a list of the version.
func continueFrom(version int64) (position, chunk string) {
	chunk = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%d,"start":"x\u0000"}`, version))
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"chunk":%q}`, chunk)), chunk
}

// The API server would wait for a version that is yet to come.
func TestAPageOfAVersionThatIsYetToComeIsNotAskedFor(t *testing.T) {
	probe := metav1.ListOptions{Limit: 1}
	for name, test := range map[string]struct {
		version int64
		// hasListed says that the engine has listed locks in version 100.
		hasListed bool
		want      error
		// lists are those before the page, if it is asked for.
		lists []metav1.ListOptions
	}{
		"the present":                            {version: 100, hasListed: true},
		"an earlier one":                         {version: 99, hasListed: true},
		"none":                                   {version: -1},
		"one that another replica has listed":    {version: 100, lists: []metav1.ListOptions{probe}},
		"one that is yet to come":                {version: 101, hasListed: true, want: lock.ErrPageExpired, lists: []metav1.ListOptions{probe}},
		"one that is yet to come, after a start": {version: 1 << 62, want: lock.ErrPageExpired, lists: []metav1.ListOptions{probe}},
	} {
		bubbleOf(t, name, func(t *testing.T) {
			var asked []metav1.ListOptions
			running := startWith(t, engine.Options{
				Objects: func(string) engine.Objects { return inVersion{newEtcd(), "100", &asked} }, Limits: rules.DefaultLimits(),
			})
			if test.hasListed {
				if _, err := running.ListPage(t.Context(), "default", lock.PageRequest{Limit: 5}); err != nil {
					t.Fatal(err)
				}
			}
			asked = nil
			position, chunk := continueFrom(test.version)
			if _, err := running.ListPage(t.Context(), "default", lock.PageRequest{Limit: 5, Continue: position}); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			lists := test.lists
			if test.want == nil {
				lists = append(lists, metav1.ListOptions{Limit: 5, Continue: chunk})
			}
			if diff := cmp.Diff(lists, asked); diff != "" {
				t.Errorf("lists (-want +got):\n%s", diff)
			}
		})
	}
}

// Every answer is in memory as a whole, so the size of a page does not follow that of its locks.
func TestAPageOfLargeLocksEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := start(t, newEtcd())
		for i := range 100 {
			request := by("a")
			request.Key, request.Reason, request.TTL = fmt.Sprintf("k%03d", i), strings.Repeat("🔒", rules.MaxReasonLength), time.Hour
			acquire(t, running, request)
		}
		request := lock.PageRequest{Limit: 500}
		var sizes []int
		for {
			page, err := running.ListPage(t.Context(), "default", request)
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, len(page.Locks))
			if request.Continue = page.Continue; request.Continue == "" {
				break
			}
		}
		if diff := cmp.Diff([]int{64, 36}, sizes); diff != "" {
			t.Errorf("locks in each page (-want +got):\n%s", diff)
		}
	})
}

// slow answers lists when it is told to.
type slow struct {
	*etcd

	underWay, answer chan struct{}
}

func (s slow) List(ctx context.Context, options metav1.ListOptions) (*v1alpha1.LockList, error) {
	s.underWay <- struct{}{}
	<-s.answer
	return s.etcd.List(ctx, options)
}

func TestFewLargeListsAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := slow{newEtcd(), make(chan struct{}, 10), make(chan struct{})}
		running := startWith(t, engine.Options{
			Objects: func(string) engine.Objects { return source }, Limits: rules.DefaultLimits(),
		})
		ended := make(chan error, 5)
		for range 5 {
			go func() {
				_, err := running.ListPage(t.Context(), "default", lock.PageRequest{Prefix: "a", Limit: 500})
				ended <- err
			}()
		}
		synctest.Wait()
		if underWay := len(source.underWay); underWay != 2 {
			t.Errorf("%d lists of 1,000 locks are under way, want 2", underWay)
		}
		close(source.answer)
		for range 5 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestPagesOfOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := start(t, newEtcd())
		for i := range 6 {
			request := by([]string{"a", "b"}[i%2])
			request.Key, request.Holder = fmt.Sprint("k", i), []string{"alice", "bob", "carol"}[i%3]
			acquire(t, running, request)
		}
		for holder, want := range map[string]int{"": 3, "alice": 1} {
			page, err := running.ListPage(t.Context(), "default", lock.PageRequest{Owner: "a", Holder: holder, Limit: 10})
			if err != nil || len(page.Locks) != want {
				t.Errorf("of the holder %q: %d locks, %v; want %d", holder, len(page.Locks), err, want)
			}
		}
	})
}

func TestAPageReadsNoMoreThanItMay(t *testing.T) {
	for name, test := range map[string]struct {
		position     string
		more, expect int
	}{
		"one chunk":            {more: 0, expect: 1},
		"three chunks":         {more: 2, expect: 3},
		"as many as it reads":  {more: 100, expect: 10},
		"beside a probe":       {position: "probed", more: 1, expect: 2},
		"a probe and no chunk": {position: "probed", more: 0, expect: 1},
	} {
		bubbleOf(t, name, func(t *testing.T) {
			etcd, lists := newEtcd(), 0
			running := startWith(t, engine.Options{
				Objects: func(string) engine.Objects { return endless{etcd, func() {}, &lists} }, Limits: rules.DefaultLimits(),
			})
			more := test.more
			request := lock.PageRequest{Limit: 1, MayReadMore: func() bool {
				more--
				return more >= 0
			}}
			if test.position != "" {
				request.Continue, _ = continueFrom(5)
			}
			page, err := running.ListPage(t.Context(), "default", request)
			if err != nil || lists != test.expect || page.Continue == "" {
				t.Errorf("%d lists, want %d; continue %q, %v", lists, test.expect, page.Continue, err)
			}
		})
	}
}

// A page is in memory until its answer is sent, however large the locks are besides.
func TestAPageKeepsOnlyWhatItTells(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, running *engine.Engine) {
		held := acquire(t, running, by("a"))
		held.Annotations = map[string]string{"large": strings.Repeat("a", 10<<10)}
		held.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		held.Spec.Guards = []v1alpha1.Guard{{Resource: "configmaps"}}
		if _, err := etcd.Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		page, err := running.ListPage(t.Context(), "default", lock.PageRequest{Limit: 1})
		if err != nil || len(page.Locks) != 1 {
			t.Fatalf("%d locks, %v", len(page.Locks), err)
		}
		got := page.Locks[0]
		if len(got.Annotations)+len(got.ManagedFields)+len(got.Spec.Guards) > 0 || got.Spec.Key != held.Spec.Key || got.UID != held.UID {
			t.Errorf("got %+v", got)
		}
		if token, err := got.FencingToken(); err != nil || token == 0 {
			t.Errorf("fencing token %d, %v", token, err)
		}
	})
}

func TestALongContinueIsNotSentToTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd, lists := newEtcd(), 0
		running := startWith(t, engine.Options{
			Objects: func(string) engine.Objects { return endless{etcd, func() {}, &lists} }, Limits: rules.DefaultLimits(),
		})
		long := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"chunk":%q}`, strings.Repeat("a", 10<<10)))
		if _, err := running.ListPage(t.Context(), "default", lock.PageRequest{Limit: 1, Continue: long}); !errors.Is(err, lock.ErrInvalid) || lists > 0 {
			t.Errorf("%d lists, %v", lists, err)
		}
	})
}
