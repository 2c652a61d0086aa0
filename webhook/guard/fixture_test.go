package guard_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/webhook/guard"
	"forrst.dev/lock-operator/webhook/sender"
)

const (
	operator = "system:serviceaccount:forrst-system:lock-operator-controllers"
	alice    = "system:serviceaccount:shop:deployer"
	bob      = "bob"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// indexed is a client builder that takes the index of the guard, which the builder needs before any object.
type indexed struct{ *fake.ClientBuilder }

func (b indexed) IndexField(_ context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	b.WithIndex(object, field, extract)
	return nil
}

func newCluster(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	if err := guard.AddIndex(t.Context(), indexed{builder}); err != nil {
		t.Fatal(err)
	}
	return builder
}

// guarded is a lock of alice, from noon on for a minute.
func guarded(t *testing.T, key string, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	t.Helper()
	lock := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop"},
		Spec: v1alpha1.LockSpec{
			Key: key, Owner: "token-a", TTL: &v1alpha1.Duration{Duration: time.Minute}, Reason: "rollout",
			Guards: []v1alpha1.Guard{
				{Group: "apps", Resource: "deployments", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
				{Resource: "configmaps", Name: "settings"},
			},
		},
	}
	for _, change := range changes {
		change(lock)
	}
	admitted, _, err := rules.AdmitCreate(lock, rules.User{Name: alice}, rules.DefaultLimits(), noon)
	if err != nil {
		t.Fatal(err)
	}
	return admitted
}

// settings is the guarded ConfigMap.
func settings(changes ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}}
	for _, change := range changes {
		change(object)
	}
	return object
}

func request(t *testing.T, operation admissionv1.Operation, resource schema.GroupVersionResource, before, after client.Object) admission.Request {
	t.Helper()
	raw := func(object client.Object) []byte {
		if object == nil {
			return nil
		}
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var asked admission.Request
	asked.Operation, asked.Namespace = operation, "shop"
	asked.Resource = metav1.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource}
	asked.OldObject.Raw, asked.Object.Raw = raw(before), raw(after)
	return asked
}

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

// world is an admission whose cache and API server may differ.
type world struct {
	admission *guard.Admission
	records   audittest.Recorder
	reads     int
	clock     *clocktesting.FakePassiveClock
}

func newWorld(t *testing.T, cached, live []client.Object) *world {
	t.Helper()
	w := &world{clock: clocktesting.NewFakePassiveClock(noon.Add(time.Second))}
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), apimeta.RESTScopeNamespace)
	w.admission = &guard.Admission{
		Locks: newCluster(t, cached...).Build(),
		LiveReader: newCluster(t, live...).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, reader client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				w.reads++
				return reader.Get(ctx, key, object, options...)
			},
		}).Build(),
		Mapper: mapper, Clock: w.clock, ClockSkewAllowance: new(time.Duration), OperatorUser: operator, Audit: &w.records,
	}
	return w
}

// ask returns the answer to the request of the user.
func (w *world) ask(t *testing.T, asked admission.Request, user string, groups ...string) admission.Response {
	t.Helper()
	asked.UserInfo = authenticationv1.UserInfo{Username: user, Groups: groups}
	return w.admission.Handle(sender.NewContext(t.Context(), sender.Sender{IsVerified: true}), asked)
}

func isGuarded(response admission.Response) bool {
	return !response.Allowed && apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: *response.Result}, v1alpha1.CauseTypeGuarded)
}
