package renewal

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/fairqueue"
	"forrst.dev/lock-operator/lock/rules"
)

var noon = time.Date(2026, 3, 15, 12, 0, 0, 0, time.UTC)

func TestALockThatIsAboutToExpireIsMoreUrgent(t *testing.T) {
	lock := rules.Grant("default", rules.Acquisition{Key: "k", Owner: "o", Holder: "flux", TTL: time.Hour}, rules.DefaultLimits(), noon)
	lock.Spec.RenewalPolicy = v1alpha1.RenewalByOperator
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	if err := store.Add(lock); err != nil {
		t.Fatal(err)
	}
	now := clocktesting.NewFakeClock(noon)
	urgency := (&Reconciler{Clock: now}).urgencyIn(store)
	name := types.NamespacedName{Namespace: "default", Name: lock.Name}
	for _, step := range []struct {
		after time.Duration
		want  fairqueue.Urgency
	}{{0, fairqueue.Start}, {15 * time.Minute, fairqueue.Start}, {18 * time.Minute, fairqueue.Hold}, {39 * time.Minute, fairqueue.Hold}, {41 * time.Minute, fairqueue.Stop}} {
		now.SetTime(noon.Add(step.after))
		if got := urgency(reconcile.Request{NamespacedName: name}); got != step.want {
			t.Errorf("%v after %s, want %v", got, step.after, step.want)
		}
	}
	if got := urgency(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "gone"}}); got != fairqueue.Start {
		t.Errorf("a lock that is gone has %v", got)
	}
	lock.Spec.RenewalPolicy = ""
	if got := urgency(reconcile.Request{NamespacedName: name}); got != fairqueue.Start {
		t.Errorf("a lock that its holder renews has %v", got)
	}
}

func TestALockWaitsForOneOfEachOtherNamespace(t *testing.T) {
	queue := (&Reconciler{}).newQueue(toolscache.NewStore(toolscache.MetaNamespaceKeyFunc))("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	for number := range 1000 {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "many", Name: fmt.Sprint(number)}})
	}
	queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "few", Name: "lock"}})
	first, _ := queue.Get()
	second, _ := queue.Get()
	if first.Namespace == second.Namespace {
		t.Errorf("served %s and %s first", first, second)
	}
}

func TestTheCacheKeepsOfANamespaceOnlyWhatItAllows(t *testing.T) {
	namespace := metadataOfNamespaces()
	namespace.Name, namespace.ResourceVersion, namespace.Labels = "shop", "7", map[string]string{"a": "b"}
	namespace.Annotations = map[string]string{"other": "x", v1alpha1.MaxOperatorRenewalAnnotation: "1h"}
	kept, err := StripNamespace(namespace)
	stripped, isMetadata := kept.(*metav1.PartialObjectMetadata)
	if err != nil || !isMetadata || stripped.Name != "shop" || stripped.ResourceVersion != "7" || len(stripped.Labels) > 0 ||
		len(stripped.Annotations) != 1 || stripped.Annotations[v1alpha1.MaxOperatorRenewalAnnotation] != "1h" {
		t.Errorf("kept %+v, %v", kept, err)
	}
	for _, other := range []any{&corev1.Pod{}, &metav1.PartialObjectMetadata{}, toolscache.DeletedFinalStateUnknown{Obj: namespace}} {
		if kept, err := StripNamespace(other); err != nil || kept != other {
			t.Errorf("changed %T", other)
		}
	}
}
