package webhook_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/usage"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/webhook"
)

func TestTheCreationOfALockThatTheOperatorIsToRenewIsBounded(t *testing.T) {
	full := usage.NewBound(1)
	full.OnAdd(fixture.Manifest("shop", "other"), false)
	declared := func(lock *v1alpha1.Lock) { lock.Spec.RenewalPolicy = v1alpha1.RenewalByOperator }
	expired := fixture.Manifest("shop", "declared", declared, func(lock *v1alpha1.Lock) {
		lock.Spec.ExpireTime = new(v1alpha1.NewTimestamp(time.Now().Add(-time.Hour)))
	})
	for name, test := range map[string]struct {
		ceiling time.Duration
		bound   *usage.Bound
		stored  []client.Object
		want    string
	}{
		"within the bounds": {ceiling: 720 * time.Hour, bound: usage.NewBound(1)},
		"within the bounds, since it is counted already": {ceiling: 720 * time.Hour, bound: full, stored: []client.Object{expired}},
		"by the cluster, which allows less":              {ceiling: time.Minute, want: "would never renew the lock"},
		"by the cluster, which allows none":              {want: "not allowed in this namespace"},
		"by the number of such locks of their namespace": {ceiling: 720 * time.Hour, bound: full, want: "as many locks that the operator renews as it may have, 1"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newFakeCluster(t, append(test.stored, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "shop", Annotations: map[string]string{v1alpha1.MaxOperatorRenewalAnnotation: "9000h"},
			}})...).Build()
			lock := fixture.Manifest("shop", "declared", declared)
			raw, err := json.Marshal(lock)
			if err != nil {
				t.Fatal(err)
			}
			answer := (&webhook.LockAdmission{
				Client: cluster, LiveReader: cluster, Limits: rules.DefaultLimits(), Clock: clocktesting.NewFakePassiveClock(time.Now()),
				MaxOperatorRenewal: test.ceiling, OperatorRenewals: test.bound,
			}).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Namespace: "shop", Object: runtime.RawExtension{Raw: raw},
			}})
			switch {
			case test.want == "" && !answer.Allowed:
				t.Errorf("refused: %+v", answer.Result)
			case test.want != "" && (answer.Allowed || answer.Result.Code != http.StatusUnprocessableEntity || !strings.Contains(answer.Result.Message, test.want)):
				t.Errorf("got %+v", answer.Result)
			}
		})
	}
}

func TestOnlyLocksThatTheOperatorRenewsCount(t *testing.T) {
	var informer controllertest.FakeInformer
	bound, err := webhook.CountOperatorRenewals(&informer, 2)
	if err != nil {
		t.Fatal(err)
	}
	lock := func(key string, policy v1alpha1.RenewalPolicy) *v1alpha1.Lock {
		return fixture.Manifest("shop", key, func(lock *v1alpha1.Lock) { lock.Name, lock.Spec.RenewalPolicy = key, policy })
	}
	informer.Add(lock("a", v1alpha1.RenewalByOperator))
	informer.Add(lock("b", v1alpha1.RenewalByHolder))
	informer.Add(lock("c", ""))
	if bound.IsFull("shop") {
		t.Error("locks count that their holders renew")
	}
	informer.Update(lock("b", v1alpha1.RenewalByHolder), lock("b", v1alpha1.RenewalByOperator))
	if !bound.IsFull("shop") {
		t.Error("a lock does not count that the operator renews since")
	}
	informer.Delete(lock("b", v1alpha1.RenewalByOperator))
	if bound.IsFull("shop") {
		t.Error("a lock counts that is gone")
	}
}
