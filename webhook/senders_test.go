package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	lockaudit "forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/webhook"
	"forrst.dev/lock-operator/webhook/guard"
	"forrst.dev/lock-operator/webhook/sender"
	"forrst.dev/lock-operator/webhook/server"
)

// fromAPIServer is the context of a review whose sender the server has verified.
func fromAPIServer(ctx context.Context) context.Context {
	return sender.NewContext(ctx, sender.Sender{IsVerified: true})
}

// indexed is a client builder that takes the index of the guards, which it needs before any object.
type indexed struct{ *fake.ClientBuilder }

// IndexField implements [client.FieldIndexer].
func (b indexed) IndexField(_ context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	b.WithIndex(object, field, extract)
	return nil
}

func newFakeCluster(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), apimeta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Lock"), apimeta.RESTScopeNamespace)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...)
	if err := guard.AddIndex(t.Context(), indexed{builder}); err != nil {
		t.Fatal(err)
	}
	return builder
}

// registered are the handlers of the webhook server of a manager.
type registered struct {
	ctrlwebhook.Server
	handlers map[string]http.Handler
}

// Register implements [ctrlwebhook.Server].
func (r registered) Register(path string, handler http.Handler) { r.handlers[path] = handler }

// managerOf is a manager with nothing but a webhook server.
type managerOf struct {
	ctrl.Manager
	server registered
}

// GetWebhookServer implements [ctrl.Manager].
func (m managerOf) GetWebhookServer() ctrlwebhook.Server { return m.server }

// heldByAlice is a lock from noon on for a minute.
func heldByAlice(t *testing.T, noon time.Time) *v1alpha1.Lock {
	t.Helper()
	lock, _, err := rules.AdmitCreate(fixture.Manifest("payments", "billing:report", fixture.TTL(time.Minute), func(l *v1alpha1.Lock) {
		l.Spec.Reason = "quarterly figures"
	}), rules.User{Name: "alice"}, rules.DefaultLimits(), noon)
	if err != nil {
		t.Fatal(err)
	}
	lock.ResourceVersion = "7"
	return lock
}

func rawLock(t *testing.T, lock *v1alpha1.Lock) runtime.RawExtension {
	t.Helper()
	if lock == nil {
		return runtime.RawExtension{}
	}
	raw, err := json.Marshal(lock)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: raw}
}

// ask is a review by the user, forged or not.
func ask(t *testing.T, operation admissionv1.Operation, user string, old, submitted *v1alpha1.Lock) admission.Request {
	t.Helper()
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: operation, Namespace: "payments", Name: "billing--report",
		UserInfo: authenticationv1.UserInfo{Username: user}, OldObject: rawLock(t, old), Object: rawLock(t, submitted),
	}}
}

// A review that the API server did not send may name any user. So nothing of a lock may be told to any.
func TestRefusalsNameNoHolderToSendersThatAreNotVerified(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	held := heldByAlice(t, noon)
	claim := fixture.Manifest("payments", "billing:report")
	claim.Spec.Owner = "token-b"
	change := held.DeepCopy()
	change.Spec.Reason = "mine"
	forced := held.DeepCopy()
	forced.Annotations = map[string]string{v1alpha1.ForceReleaseReasonAnnotation: "because"}
	yes := func() (authorizer.Decision, error) { return authorizer.DecisionAllow, nil }
	no := func() (authorizer.Decision, error) { return authorizer.DecisionNoOpinion, nil }
	unknown := func() (authorizer.Decision, error) {
		return authorizer.DecisionNoOpinion, errors.New("the API server is away")
	}
	const look = "kubectl get lock billing--report"
	cases := map[string]struct {
		after   time.Duration
		request admission.Request
		right   func() (authorizer.Decision, error)
		// named is what the API server is told, hint what others are told besides.
		named, hint string
	}{
		"a create":                      {0, ask(t, admissionv1.Create, "bob", nil, claim), no, `held by "alice" until 2026`, look},
		"a create by the holder":        {0, ask(t, admissionv1.Create, "alice", nil, claim), no, `held by "alice" until 2026`, look},
		"a create by an administrator":  {0, ask(t, admissionv1.Create, "system:admin", nil, claim), no, `held by "alice" until 2026`, look},
		"a create just after expiry":    {time.Minute, ask(t, admissionv1.Create, "bob", nil, claim), no, "has expired, but is kept", look},
		"an update":                     {0, ask(t, admissionv1.Update, "bob", held, change), no, `held by "alice" until 2026`, look},
		"a delete without the right":    {0, ask(t, admissionv1.Delete, "bob", held, nil), no, `held by "alice" until 2026`, look},
		"a delete if it is not known":   {0, ask(t, admissionv1.Delete, "bob", held, nil), unknown, `held by "alice" until 2026`, look},
		"a reason for a forced release": {0, ask(t, admissionv1.Update, "bob", held, forced), no, `held by "alice" until 2026`, look},
		"a delete without a reason":     {0, ask(t, admissionv1.Delete, "bob", held, nil), yes, `held by "alice" until 2026`, "first say why"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := newFakeCluster(t, held.DeepCopy()).Build()
			handler := &webhook.LockAdmission{
				Client: cluster, LiveReader: cluster, Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second,
				Clock: clocktesting.NewFakePassiveClock(noon.Add(test.after)),
				Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
					decision, err := test.right()
					return decision, "", err
				}),
			}
			told := handler.Handle(fromAPIServer(t.Context()), test.request)
			if told.Allowed || !strings.Contains(told.Result.Message, test.named) {
				t.Errorf("the API server is told %+v", told.Result)
			}
			answer := handler.Handle(t.Context(), test.request)
			text, err := json.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{"alice", "2026", "token-a", "quarterly", "expired,", "yours"} {
				if strings.Contains(string(text), secret) {
					t.Errorf("%q is told: %s", secret, text)
				}
			}
			if answer.Allowed || answer.Result.Code != told.Result.Code || answer.Result.Reason != told.Result.Reason ||
				!strings.Contains(answer.Result.Message, test.hint) {
				t.Errorf("got %s", text)
			}
		})
	}
}

// The record of a refusal is not for the sender.
func TestTheRecordOfARefusalNamesTheHolder(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	held := heldByAlice(t, noon)
	now := clocktesting.NewFakePassiveClock(noon)
	cluster := newFakeCluster(t, held).Build()
	var records audittest.Recorder
	audit := webhook.NewAudit(&records, now)
	handler := &webhook.LockAdmission{
		Client: cluster, LiveReader: cluster, Limits: rules.DefaultLimits(), Clock: now, Audit: audit,
	}
	handler.Handle(t.Context(), ask(t, admissionv1.Create, "bob", nil, fixture.Manifest("payments", "billing:report")))
	if got := records.All(); len(got) != 1 || !strings.Contains(got[0].Message, `held by "alice"`) {
		t.Errorf("recorded %+v", got)
	}
}

func TestReviewsThatCostTooManyRequestsAreRefusedForTheMoment(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	now := clocktesting.NewFakePassiveClock(noon)
	held := heldByAlice(t, noon)
	guarding := func(l *v1alpha1.Lock) { l.Spec.Guards = []v1alpha1.Guard{{Resource: "configmaps", Name: "settings"}} }
	stored := held.DeepCopy()
	guarding(stored)
	byPod := func(l *v1alpha1.Lock) {
		l.Spec.HolderRef = &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "1"}
	}
	ofSettings := ask(t, admissionv1.Update, "bob", nil, nil)
	ofSettings.Name, ofSettings.Resource = "settings", metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	ofSettings.Object.Raw, ofSettings.OldObject.Raw = []byte(`{"metadata":{"name":"settings"}}`), []byte(`{"metadata":{"name":"settings"}}`)
	cases := map[string]struct {
		path    string
		request admission.Request
	}{
		"the read of a lock that is known": {webhook.LockPath, ask(t, admissionv1.Create, "bob", nil, fixture.Manifest("payments", "billing:report"))},
		"the right to force a release":     {webhook.LockPath, ask(t, admissionv1.Delete, "bob", held, nil)},
		"the object of a holderRef":        {webhook.LockPath, ask(t, admissionv1.Create, "bob", nil, fixture.Manifest("payments", "another", byPod))},
		"whether guards are enforced":      {webhook.LockPath, ask(t, admissionv1.Create, "bob", nil, fixture.Manifest("payments", "another", guarding))},
		"the lock that guards an object":   {guard.Path, ofSettings},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := newFakeCluster(t, stored.DeepCopy(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "payments"}}).Build()
			manager := managerOf{server: registered{handlers: map[string]http.Handler{}}}
			asked := 0
			reader := counting{cluster, &asked}
			(&webhook.LockAdmission{
				Client: cluster, LiveReader: reader, Limits: rules.DefaultLimits(), Clock: now, IsGuarding: true,
				Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
					asked++
					return authorizer.DecisionNoOpinion, "", nil
				}),
			}).SetupWithManager(manager)
			if err := (&guard.Admission{Locks: cluster, LiveReader: reader, Clock: now, ClockSkewAllowance: new(time.Duration)}).SetupWithManager(manager); err != nil {
				t.Fatal(err)
			}
			handler, ok := manager.server.handlers[test.path].(*admission.Webhook)
			if !ok {
				t.Fatalf("%T is registered", manager.server.handlers[test.path])
			}
			answer := handler.Handle(sender.NewContext(t.Context(), sender.Sender{Allow: func() bool { return false }}), test.request)
			if answer.Allowed || answer.Result.Code != http.StatusTooManyRequests || answer.Result.Reason != metav1.StatusReasonTooManyRequests ||
				answer.Result.Details == nil || answer.Result.Details.RetryAfterSeconds == 0 || asked != 0 {
				t.Errorf("got %+v, with %d requests", answer.Result, asked)
			}
			handler.Handle(sender.NewContext(t.Context(), sender.Sender{Allow: func() bool { return true }}), test.request)
			if asked == 0 {
				t.Error("the review costs no request at all")
			}
		})
	}
}

// counting counts reads.
type counting struct {
	client.Reader
	reads *int
}

func (c counting) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	*c.reads++
	return c.Reader.Get(ctx, key, object, options...)
}

func (c counting) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	*c.reads++
	return c.Reader.List(ctx, list, options...)
}

func TestTheSizeOfALockIsJudgedBeforeItIsDecoded(t *testing.T) {
	large := runtime.RawExtension{Raw: []byte(strings.Repeat("x", 300<<10))} // It cannot be decoded.
	request := func(operation admissionv1.Operation, old, submitted runtime.RawExtension) admission.Request {
		return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: operation, Namespace: "default", OldObject: old, Object: submitted}}
	}
	small := rawLock(t, fixture.Manifest("default", "small"))
	for name, test := range map[string]admission.Request{
		"a create":                 request(admissionv1.Create, runtime.RawExtension{}, large),
		"an update":                request(admissionv1.Update, small, large),
		"an update of a large one": request(admissionv1.Update, large, small),
		"a delete of a large one":  request(admissionv1.Delete, large, runtime.RawExtension{}),
	} {
		t.Run(name, func(t *testing.T) {
			want := metav1.StatusReasonInvalid
			if test.Operation == admissionv1.Update {
				want = metav1.StatusReasonBadRequest // so that no tool deletes the lock
			}
			answer := (&webhook.LockAdmission{}).Handle(t.Context(), test)
			if answer.Allowed || answer.Result.Reason != want || !strings.Contains(answer.Result.Message, "307200 bytes large") {
				t.Errorf("got %+v", answer.Result)
			}
		})
	}
}

// What no change may lead to is not decoded, whatever the stored lock is.
func TestAChangeThatEnlargesALockTooMuchIsNotDecoded(t *testing.T) {
	object := func(bytes int) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(strings.Repeat("x", bytes))} // It cannot be decoded.
	}
	for name, test := range map[string]struct {
		before, after int
		want          string
	}{
		"a small lock":                {1000, rules.MaxBytes + rules.MaxGrowth + 1, "bytes large as JSON"},
		"a small lock, by less":       {1000, rules.MaxBytes + rules.MaxGrowth, "decode the stored lock"},
		"one of an earlier version":   {100_000, 100_000 + rules.MaxGrowth + 1, "bytes large as JSON"},
		"such a lock, by less":        {100_000, 100_000 + rules.MaxGrowth, "decode the stored lock"},
		"one that is larger, by less": {256<<10 + 1, 1000, "bytes large as JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := (&webhook.LockAdmission{}).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Update, Namespace: "default", OldObject: object(test.before), Object: object(test.after),
			}})
			if answer.Allowed || !strings.Contains(answer.Result.Message, test.want) {
				t.Errorf("got %+v", answer.Result)
			}
		})
	}
}

func TestRefusalsBeforeAReviewIsJudgedAreRecorded(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	now := clocktesting.NewFakePassiveClock(noon)
	var records audittest.Recorder
	audit := webhook.NewAudit(&records, now)
	handler := &webhook.LockAdmission{Limits: rules.DefaultLimits(), Clock: now, Audit: audit}
	expect := func(what, want string) {
		t.Helper()
		got := records.All()
		if len(got) == 0 {
			t.Errorf("%s: no record", what)
			return
		}
		last := got[len(got)-1]
		if text := fmt.Sprint(len(got), " ", last.Event, " ", last.Operation, " ", last.Reason, " ", last.Actor, " ", last.Namespace, "/", last.Lock); text != want {
			t.Errorf("%s: recorded %s, want %s", what, text, want)
		}
		if last.Message == "" || !last.Time.Equal(new(v1alpha1.NewTimestamp(noon))) {
			t.Errorf("%s: recorded %+v", what, last)
		}
	}
	large := ask(t, admissionv1.Create, "bob", nil, nil)
	large.Object.Raw = []byte(strings.Repeat("x", 300<<10))
	handler.Handle(t.Context(), large)
	expect("a lock that is too large", "1 Refused create Invalid bob payments/billing--report")
	malformed := ask(t, admissionv1.Create, "bob", nil, nil)
	malformed.Object.Raw = []byte(`{"spec":{"ttl":7}}`)
	handler.Handle(t.Context(), malformed)
	expect("a lock that cannot be decoded", "2 Refused create Invalid bob payments/billing--report")

	request := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, Namespace: "payments", Name: strings.Repeat("n", 2000), UserInfo: authenticationv1.UserInfo{Username: "bob"},
	}
	refused := server.Refused{Path: webhook.LockPath, Request: request, Status: metav1.Status{Reason: metav1.StatusReasonRequestEntityTooLarge, Message: "too large"}}
	audit.Unjudged(refused)
	expect("a review that is too large", "3 Refused update Invalid bob payments/"+strings.Repeat("n", 1024))
	refused.Status.Reason = metav1.StatusReasonServiceUnavailable
	audit.Unjudged(refused)
	expect("a review without memory", "4 Refused update Failed bob payments/"+strings.Repeat("n", 1024))
	refused.Path = webhook.JobPath
	audit.Unjudged(refused)
	expect("a review of a Job", "5 Refused update Failed bob payments/")
	refused.Path = guard.Path
	audit.Unjudged(refused)
	expect("a review of a guarded object", "6 WriteRefused update Failed bob payments/")
	if object := records.All()[5].Object; object == nil || object.Name != strings.Repeat("n", 1024) {
		t.Errorf("recorded the object %+v", object)
	}
	refused.Path = webhook.DeletionAuditPath
	audit.Unjudged(refused)
	unread := records.All()[6]
	if unread.Event != lockaudit.Released || unread.Actor != "bob" || unread.Namespace != "payments" || !unread.Admitted ||
		unread.Lock == "" || len(unread.Lock) > lockaudit.MaxNameBytes {
		t.Errorf("a deletion that was reported and not read is recorded as %+v", unread)
	}
	refused.IsAbandoned = true
	for _, refused.Path = range []string{webhook.LockPath, webhook.JobPath, guard.Path, webhook.DeletionAuditPath} {
		audit.Unjudged(refused)
	}
	if got := len(records.All()); got != 8 {
		t.Errorf("%d records with reviews that were abandoned, want one more, of the deletion", got)
	}
	refused.IsAbandoned = false
	dryRun := *request
	dryRun.DryRun = new(true)
	refused.Request = &dryRun
	for _, refused.Path = range []string{webhook.LockPath, webhook.JobPath, guard.Path, webhook.DeletionAuditPath} {
		audit.Unjudged(refused)
	}
	if got := len(records.All()); got != 8 {
		t.Errorf("%d records, with those of dry runs", got)
	}
}

func TestADeletionByKubernetesIsOnRecordEvenIfItCannotBeRead(t *testing.T) {
	const cleaner = "system:serviceaccount:kube-system:namespace-controller"
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var records audittest.Recorder
	manager := managerOf{server: registered{handlers: map[string]http.Handler{}}}
	webhook.NewAudit(&records, clocktesting.NewFakePassiveClock(noon)).SetupDeletionAudit(manager)
	handler, ok := manager.server.handlers[webhook.DeletionAuditPath].(*admission.Webhook)
	if !ok {
		t.Fatalf("%T is registered", manager.server.handlers[webhook.DeletionAuditPath])
	}
	unreadable := ask(t, admissionv1.Delete, cleaner, nil, nil)
	unreadable.OldObject.Raw = []byte(`{"spec":7}`)
	for _, request := range []admission.Request{ask(t, admissionv1.Delete, cleaner, heldByAlice(t, noon), nil), unreadable} {
		if !handler.Handle(t.Context(), request).Allowed {
			t.Error("the deletion was refused")
		}
	}
	var got []string
	for _, record := range records.All() {
		got = append(got, fmt.Sprint(record.Event, " ", record.Reason, " ", record.Actor, " ", record.Lock, " ", record.Holder, " ", record.Admitted))
	}
	if want := fmt.Sprintf("[Released NamespaceDeleted %[1]s billing--report alice true Released  %[1]s billing--report  true]", cleaner); fmt.Sprint(got) != want {
		t.Errorf("recorded %v, want %s", got, want)
	}
}

func TestARefusalTellsAnAccountThatWasCreatedAgain(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	held := heldByAlice(t, noon)
	held.Spec.HolderUID = "1"
	change := held.DeepCopy()
	change.Spec.Owner = "token-b"
	cluster := newFakeCluster(t).Build()
	handler := &webhook.LockAdmission{Client: cluster, LiveReader: cluster, Limits: rules.DefaultLimits(), Clock: clocktesting.NewFakePassiveClock(noon)}
	for uid, want := range map[string]string{"1": "it is yours under another owner token", "2": "an earlier account of your name, with another UID"} {
		asked := ask(t, admissionv1.Update, "alice", held, change)
		asked.UserInfo.UID = uid
		if answer := handler.Handle(fromAPIServer(t.Context()), asked); answer.Allowed || !strings.Contains(answer.Result.Message, want) {
			t.Errorf("with UID %s: %+v", uid, answer.Result)
		}
	}
}
