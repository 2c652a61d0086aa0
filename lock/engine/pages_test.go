package engine_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

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
	return &v1alpha1.LockList{ListMeta: metav1.ListMeta{Continue: fmt.Sprint(*e.lists)}}, nil
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
		})
	}
}
