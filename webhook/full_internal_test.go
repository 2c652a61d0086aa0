package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/usage"
)

func creationOf(t *testing.T, object client.Object) admission.Request {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: object.GetNamespace(), Name: object.GetName(),
		UserInfo: authenticationv1.UserInfo{Username: "bob"}, Object: runtime.RawExtension{Raw: raw},
	}}
}

// full returns a bound on the objects of namespace "full", which has as many as it may have.
func full(shown ...client.Object) *usage.Bound {
	bound := usage.NewBound(len(shown))
	for _, object := range shown {
		bound.OnAdd(object, true)
	}
	return bound
}

func TestAFullNamespaceTakesNoOtherLock(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	manifest := func(namespace, key string) *v1alpha1.Lock {
		return &v1alpha1.Lock{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()},
			Spec:       v1alpha1.LockSpec{Key: key, Owner: "token", TTL: &v1alpha1.Duration{Duration: time.Minute}},
		}
	}
	expired, _, err := rules.AdmitCreate(manifest("full", "expired"), rules.User{Name: "alice"}, rules.DefaultLimits(), noon.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(expired).Build()
	handler := &LockAdmission{
		Client: cluster, LiveReader: cluster, Limits: rules.DefaultLimits(), Clock: clocktesting.NewFakePassiveClock(noon), Bound: full(expired),
	}
	response := handler.Handle(t.Context(), creationOf(t, manifest("full", "other")))
	if response.Allowed {
		t.Fatal("allowed")
	}
	status := &apierrors.StatusError{ErrStatus: *response.Result}
	status.ErrStatus.Message = `admission webhook "lock.forrst.dev" denied the request: ` + status.ErrStatus.Message // As the API server has it.
	refused, isRefusal := refusal.Of(status)
	const want = "namespace full has as many locks as it may have, 1;"
	if !isRefusal || !strings.HasPrefix(refused.Reason(), want) || !apierrors.IsForbidden(status) {
		t.Errorf("got %v, want a refusal for programs: %s", status, want)
	}
	for name, allowed := range map[string]*v1alpha1.Lock{
		"in another namespace":   manifest("other", "other"),
		"in the place of an old": manifest("full", "expired"),
	} {
		if response := handler.Handle(t.Context(), creationOf(t, allowed)); !response.Allowed {
			t.Errorf("refused %s: %s", name, response.Result.Message)
		}
	}
}

func TestAFullNamespaceTakesNoOtherJobUnderALock(t *testing.T) {
	job := func(namespace, label string) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "job", Labels: map[string]string{v1alpha1.LockLabel: label},
			Annotations: map[string]string{v1alpha1.LockKeyAnnotation: "key"},
		}}
	}
	handler := &JobAdmission{Clock: clocktesting.NewFakePassiveClock(time.Now()), Bound: full(job("full", "true"))}
	response := handler.Handle(t.Context(), creationOf(t, job("full", "true")))
	if response.Allowed || response.Result.Code != http.StatusForbidden ||
		!strings.Contains(response.Result.Message, "namespace full has as many Jobs with the label forrst.dev/lock as it may have, 1") {
		t.Errorf("got %+v", response)
	}
	for name, allowed := range map[string]*batchv1.Job{"in another namespace": job("other", "true"), "without a lock": job("full", "false")} {
		if response := handler.Handle(t.Context(), creationOf(t, allowed)); !response.Allowed {
			t.Errorf("refused %s: %s", name, response.Result.Message)
		}
	}
}

// Otherwise a Job could become one whose changes, and so its end, are refused.
func TestAJobUnderALockIsSoSmallThatItsChangesCanBeReviewed(t *testing.T) {
	handler := &JobAdmission{Limits: jobs.Limits{MaxTTL: time.Hour}, Clock: clocktesting.NewFakePassiveClock(time.Now())}
	for name, test := range map[string]struct {
		label     string
		old, next int
		isRefused bool
	}{
		"a new one of nearly 128 KiB":   {label: "true", next: 127},
		"a new one of more":             {label: "true", next: 128, isRefused: true},
		"a new one that is under none":  {label: "false", next: 200},
		"one that grows beyond it":      {label: "true", old: 100, next: 128, isRefused: true},
		"one that was too large before": {label: "true", old: 200, next: 199},
	} {
		t.Run(name, func(t *testing.T) {
			job := func(size int) *batchv1.Job {
				return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
					Name: "job", Labels: map[string]string{v1alpha1.LockLabel: test.label},
					Annotations: map[string]string{v1alpha1.LockKeyAnnotation: "key", "example.com/text": strings.Repeat("x", size<<10)},
				}}
			}
			request := creationOf(t, job(test.next))
			if test.old > 0 {
				request.Operation, request.OldObject = admissionv1.Update, creationOf(t, job(test.old)).Object
			}
			response := handler.Handle(t.Context(), request)
			isRefused := !response.Allowed && response.Result.Code == http.StatusRequestEntityTooLarge && strings.Contains(response.Result.Message, "at most 128 KiB")
			if isRefused != test.isRefused || !isRefused && !response.Allowed {
				t.Errorf("got %+v", response)
			}
		})
	}
}

// A rule reads whether a Job has ended.
func TestTheFinalizerOfAnEndedJobIsRemoved(t *testing.T) {
	handler := &JobAdmission{Limits: jobs.Limits{MaxTTL: time.Hour}, Clock: clocktesting.NewFakePassiveClock(time.Now())}
	for _, test := range []struct {
		status corev1.ConditionStatus
		isKept bool
	}{{corev1.ConditionTrue, false}, {corev1.ConditionFalse, true}} {
		ended := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Name: "job", Labels: map[string]string{v1alpha1.LockLabel: "true"}, Finalizers: []string{v1alpha1.LockFinalizer},
				Annotations: map[string]string{v1alpha1.LockKeyAnnotation: "key", v1alpha1.LockQueuedTimeAnnotation: "2024-03-15T10:30:00Z"},
			},
			Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: test.status}}},
		}
		next := ended.DeepCopy()
		next.Finalizers = nil
		request := creationOf(t, next)
		request.Operation, request.OldObject = admissionv1.Update, creationOf(t, ended).Object
		response := handler.Handle(t.Context(), request)
		isKept := strings.Contains(fmt.Sprint(response.Patches), "finalizers")
		if !response.Allowed || isKept != test.isKept {
			t.Errorf("complete: %s: got %+v", test.status, response)
		}
	}
}

func TestRefusedJobsAreOnRecord(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	records := &audittest.Recorder{}
	handler := &JobAdmission{Clock: now, Audit: NewAudit(records, now)}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "payments", Name: "nightly", Labels: map[string]string{v1alpha1.LockLabel: "true"},
		Annotations: map[string]string{v1alpha1.LockKeyAnnotation: "billing:report", v1alpha1.LockTTLAnnotation: "never"},
	}}
	request := creationOf(t, job)
	request.UserInfo.Username = "alice"
	if handler.Handle(t.Context(), request).Allowed {
		t.Fatal("admitted")
	}
	request.DryRun = new(true)
	handler.Handle(t.Context(), request)
	got := records.All()
	if len(got) != 1 {
		t.Fatalf("records are %+v, want one", got)
	}
	want := audit.Record{
		Schema: audit.Schema, Time: v1alpha1.NewTimestamp(now.Now()), Event: audit.Refused, Reason: audit.Invalid, Via: audit.Admission, Actor: "alice",
		Namespace: "payments", Lock: "billing--report", Key: "billing:report", Scope: v1alpha1.ScopeGlobal, Operation: "create",
		Object: &audit.Object{Group: "batch", Resource: "jobs", Name: "nightly"}, Message: got[0].Message,
	}
	if diff := cmp.Diff(want, got[0]); diff != "" || want.Message == "" {
		t.Errorf("the record (-want +got):\n%s", diff)
	}
}
