package reaper_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/reaper"
	"forrst.dev/lock-operator/lock/rules"
)

// TestADeleteThatWasNotAnswered is about a replica that has lost the leadership since: another
// one ends the lock and records it, perhaps hours later.
func TestADeleteThatWasNotAnswered(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	cases := map[string]struct {
		// goneAfter is when another replica has deleted the lock.
		goneAfter time.Duration
		want      bool
	}{
		"is taken for its own within a minute": {30 * time.Second, true},
		"is forgotten after a minute":          {2 * time.Minute, false},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			stored := rules.Grant("default", rules.Acquisition{Key: "k", Owner: "a", Holder: "alice"}, rules.DefaultLimits(), began)
			stored.UID = "uid"
			cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).Build()
			name := client.ObjectKeyFromObject(stored)
			if err := cache.Get(t.Context(), name, stored); err != nil {
				t.Fatal(err)
			}
			unanswered := interceptor.NewClient(cache, interceptor.Funcs{
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
					return errors.New("EOF")
				},
			})
			var reaper reaper.Reaper
			if _, err := reaper.Delete(t.Context(), unanswered, stored, began); err == nil {
				t.Fatal("the delete was answered")
			}
			for at := time.Duration(0); at < test.goneAfter; at += 5 * time.Second {
				if got, err := reaper.Resolve(t.Context(), cache, name, began.Add(at)); got != nil || err != nil {
					t.Fatalf("got %v, %v while the cache shows the lock", got, err)
				}
				if isOpen := reaper.RecheckAfter(name) > 0; isOpen != (at < time.Minute) {
					t.Fatalf("the delete is open: %t after %s", isOpen, at)
				}
			}
			if err := cache.Delete(t.Context(), stored); err != nil {
				t.Fatal(err)
			}
			got, err := reaper.Resolve(t.Context(), cache, name, began.Add(test.goneAfter))
			if err != nil || (got != nil) != test.want {
				t.Errorf("got %v, %v; want a lock: %t", got, err, test.want)
			}
			if reaper.RecheckAfter(name) != 0 {
				t.Error("the delete is open for ever")
			}
		})
	}
}
