package guard_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/webhook/guard"
)

func TestWhoMayWriteAGuardedObject(t *testing.T) {
	change := func(t *testing.T) admission.Request {
		t.Helper()
		return request(t, admissionv1.Update, configMaps, settings(), settings())
	}
	for name, test := range map[string]struct {
		user   string
		groups []string
		want   bool
		reads  int
	}{
		"the holder":                         {user: alice, want: true},
		"another user":                       {user: bob, reads: 1},
		"an administrator":                   {user: "admin", groups: []string{"system:masters"}, reads: 1},
		"another service account":            {user: "system:serviceaccount:shop:other", reads: 1},
		"the account of that name elsewhere": {user: "system:serviceaccount:other:deployer", reads: 1},
		"the operator":                       {user: operator, want: true},
		// The API server asks about these only if an overlay has taken them off the match conditions.
		"a kubelet":             {user: "system:node:worker-1", groups: []string{"system:nodes"}, reads: 1},
		"the garbage collector": {user: "system:serviceaccount:kube-system:generic-garbage-collector", reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			lock := guarded(t, "deploy:web")
			w := newWorld(t, []client.Object{lock}, []client.Object{lock})
			response := w.ask(t, change(t), test.user, test.groups...)
			if response.Allowed != test.want || !test.want && !isGuarded(response) {
				t.Errorf("got %+v", response)
			}
			if w.reads != test.reads {
				t.Errorf("it took %d reads, want %d", w.reads, test.reads)
			}
		})
	}
}

func TestAnAccountThatWasCreatedAgainIsNotTheHolder(t *testing.T) {
	lock := guarded(t, "deploy:web")
	lock.Spec.HolderUID = "1"
	for uid, want := range map[string]bool{"1": true, "2": false, "": true} {
		w := newWorld(t, []client.Object{lock}, []client.Object{lock})
		asked := request(t, admissionv1.Update, configMaps, settings(), settings())
		asked.UserInfo = authenticationv1.UserInfo{Username: alice, UID: uid}
		if response := w.admission.Handle(t.Context(), asked); response.Allowed != want {
			t.Errorf("UID %q: got %+v", uid, response)
		}
	}
}

func TestWhatIsGuarded(t *testing.T) {
	deployment := func(labels ...string) *appsv1.Deployment {
		object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{}}}
		for _, app := range labels {
			object.Labels["app"] = app
		}
		return object
	}
	other := settings(func(c *corev1.ConfigMap) { c.Name = "other" })
	for name, test := range map[string]struct {
		asked admission.Request
		want  bool
	}{
		"an update":                        {request(t, admissionv1.Update, configMaps, settings(), settings()), true},
		"a create":                         {request(t, admissionv1.Create, configMaps, nil, settings()), true},
		"a delete":                         {request(t, admissionv1.Delete, configMaps, settings(), nil), true},
		"an update of another object":      {request(t, admissionv1.Update, configMaps, other, other), false},
		"another resource":                 {request(t, admissionv1.Update, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, settings(), settings()), false},
		"an update by labels":              {request(t, admissionv1.Update, deployments, deployment("web"), deployment("web")), true},
		"an update of other labels":        {request(t, admissionv1.Update, deployments, deployment("api"), deployment("api")), false},
		"an update that removes the label": {request(t, admissionv1.Update, deployments, deployment("web"), deployment()), true},
		"an update that sets the label":    {request(t, admissionv1.Update, deployments, deployment(), deployment("web")), true},
		"a create by labels":               {request(t, admissionv1.Create, deployments, nil, deployment("web")), true},
		"a delete by labels":               {request(t, admissionv1.Delete, deployments, deployment("web"), nil), true},
	} {
		t.Run(name, func(t *testing.T) {
			lock := guarded(t, "deploy:web")
			w := newWorld(t, []client.Object{lock}, []client.Object{lock})
			response := w.ask(t, test.asked, bob)
			if isGuarded(response) != test.want || response.Allowed == test.want {
				t.Errorf("got %+v", response)
			}
			if !test.want && (w.reads != 0 || len(w.records.All()) != 0) {
				t.Errorf("it took %d reads and left %v", w.reads, w.records.All())
			}
		})
	}
}

func TestSubresources(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}}}
	api := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "api", Labels: map[string]string{"app": "api"}}}
	lock := guarded(t, "deploy:web")
	// Like the API server's Scale, it has no labels.
	scaleOf := func(name string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	}
	for name, test := range map[string]struct {
		subresource   string
		before, after *appsv1.Deployment
		want          bool
		reads         int
	}{
		"the scale of a guarded object":               {"scale", scaleOf("web"), scaleOf("web"), true, 2},
		"the scale of another object":                 {"scale", scaleOf("api"), scaleOf("api"), false, 1},
		"the status of a guarded object":              {"status", web, web, true, 1},
		"the status of another object":                {"status", api, api, false, 0},
		"a status that removes the label":             {"status", web, scaleOf("web"), true, 1},
		"a status that sets the label on another one": {"status", scaleOf("web"), web, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []client.Object{lock}, []client.Object{lock, web, api})
			asked := request(t, admissionv1.Update, deployments, test.before, test.after)
			asked.SubResource, asked.Name = test.subresource, test.after.Name
			if response := w.ask(t, asked, bob); isGuarded(response) != test.want || response.Allowed == test.want {
				t.Errorf("got %+v", response)
			}
			if w.reads != test.reads {
				t.Errorf("it took %d reads, want %d", w.reads, test.reads)
			}
		})
	}
}

func TestScaleOfAnObjectWhoseLabelsCannotBeReadIsRefused(t *testing.T) {
	lock := guarded(t, "deploy:web")
	w := newWorld(t, []client.Object{lock}, []client.Object{lock})
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	asked := request(t, admissionv1.Update, deployments, web, web)
	asked.SubResource, asked.Name = "scale", "web"
	if response := w.ask(t, asked, bob); response.Allowed || isGuarded(response) {
		t.Errorf("got %+v", response)
	}
}

// A write of an object without a guard costs a look-up in the index: no lock is compared with it, and the
// object is not even decoded.
func TestUnguardedWritesCostALookUp(t *testing.T) {
	without := guarded(t, "unguarding", func(l *v1alpha1.Lock) { l.Spec.Guards = nil })
	elsewhere := guarded(t, "deploy:web")
	elsewhere.Namespace = "other"
	w := newWorld(t, []client.Object{without, elsewhere, guarded(t, "deploy:api", func(l *v1alpha1.Lock) { l.Spec.Guards = l.Spec.Guards[:1] })}, nil)
	index := &countingReader{Reader: w.admission.Locks}
	w.admission.Locks = index
	asked := request(t, admissionv1.Update, configMaps, settings(), settings())
	asked.Object.Raw = []byte("{")
	if response := w.ask(t, asked, bob); !response.Allowed || w.reads != 0 || index.found != 0 {
		t.Errorf("got %+v after %d reads and with %d locks", response, w.reads, index.found)
	}
}

// countingReader counts the locks that its lists find.
type countingReader struct {
	client.Reader
	found int
}

func (r *countingReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := r.Reader.List(ctx, list, options...)
	r.found += apimeta.LenList(list)
	return err
}

// A refusal is confirmed by a read; the cache alone refuses nothing.
func TestCacheThatIsBehind(t *testing.T) {
	lock := guarded(t, "deploy:web")
	next := lock.DeepCopy()
	next.Spec.Holder = bob
	elsewhere := guarded(t, "deploy:web", func(l *v1alpha1.Lock) { l.Spec.Guards[1].Name = "others" })
	renewed := guarded(t, "deploy:web", func(l *v1alpha1.Lock) { l.Spec.TTL.Duration = time.Hour })
	fenced := settings(func(c *corev1.ConfigMap) {
		c.Annotations = map[string]string{v1alpha1.FencedByAnnotation: "deploy:web"}
	})
	for name, test := range map[string]struct {
		cached, live []client.Object
		object       *corev1.ConfigMap
		user         string
		after        time.Duration
		want         bool
	}{
		"shows a lock that was released":                            {cached: []client.Object{lock}, want: true},
		"shows the former holder":                                   {cached: []client.Object{lock}, live: []client.Object{next}, want: true},
		"shows other guards":                                        {cached: []client.Object{lock}, live: []client.Object{elsewhere}, want: true},
		"shows a lock as expired that was renewed":                  {cached: []client.Object{lock}, live: []client.Object{renewed}, after: 2 * time.Minute},
		"shows the user as the holder of a lock that expired":       {cached: []client.Object{next}, live: []client.Object{renewed}, after: 2 * time.Minute},
		"lacks the grant":                                           {live: []client.Object{lock}, want: true},
		"lacks the grant, for an object that the lock fences":       {live: []client.Object{lock}, object: fenced},
		"shows the former holder of an object that the lock fences": {cached: []client.Object{next}, live: []client.Object{lock}, object: fenced},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.cached, test.live)
			w.clock.SetTime(noon.Add(max(time.Second, test.after)))
			object := settings()
			if test.object != nil {
				object = test.object
			}
			response := w.ask(t, request(t, admissionv1.Update, configMaps, object, object), bob)
			if response.Allowed != test.want || isGuarded(response) == test.want {
				t.Errorf("got %+v", response)
			}
		})
	}
}

func TestExpiredLocksGuardNothing(t *testing.T) {
	lock := guarded(t, "deploy:web")
	asked := request(t, admissionv1.Update, configMaps, settings(), settings())
	for after, want := range map[time.Duration]bool{time.Minute - time.Microsecond: false, time.Minute: true, time.Hour: true} {
		w := newWorld(t, []client.Object{lock}, []client.Object{lock})
		w.clock.SetTime(noon.Add(after))
		if response := w.ask(t, asked, bob); response.Allowed != want {
			t.Errorf("after %s: %+v", after, response)
		}
	}
}

// The clock that stamped the lock may have been behind. The holder may rely on its lock as long, and nobody takes it over.
func TestALockGuardsForTheClockSkewAllowance(t *testing.T) {
	lock := guarded(t, "deploy:web")
	asked := request(t, admissionv1.Update, configMaps, settings(), settings())
	for after, isOver := range map[time.Duration]bool{time.Minute + time.Second - time.Microsecond: false, time.Minute + time.Second: true} {
		w := newWorld(t, []client.Object{lock}, []client.Object{lock})
		w.admission.ClockSkewAllowance = new(time.Second)
		w.clock.SetTime(noon.Add(after))
		if response := w.ask(t, asked, bob); response.Allowed != isOver {
			t.Errorf("after %s: %+v", after, response)
		}
		if response := w.ask(t, asked, lock.Spec.Holder); !response.Allowed {
			t.Errorf("the holder, after %s: %+v", after, response)
		}
	}
}

func TestAClockThatMayBeAheadKeepsTheGuard(t *testing.T) {
	lock := guarded(t, "deploy:web")
	w := newWorld(t, []client.Object{lock}, []client.Object{lock})
	w.admission.Clock = aheadClock{clocktesting.NewFakePassiveClock(noon.Add(time.Minute + time.Second - 1))}
	if response := w.ask(t, request(t, admissionv1.Update, configMaps, settings(), settings()), bob); !isGuarded(response) {
		t.Errorf("got %+v", response)
	}
}

// aheadClock may be ahead by a second.
type aheadClock struct{ *clocktesting.FakePassiveClock }

func (aheadClock) MaxAhead() time.Duration { return time.Second }

func TestAccountOfTheHoldersPod(t *testing.T) {
	lock := guarded(t, "deploy:web", func(l *v1alpha1.Lock) {
		l.Spec.HolderRef = &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "uid-0"}
	})
	ofJob := guarded(t, "deploy:web", func(l *v1alpha1.Lock) {
		l.Spec.HolderRef = &v1alpha1.HolderReference{APIVersion: "batch/v1", Kind: "Job", Name: "worker-0", UID: "uid-0"}
	})
	workerPod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "worker-0", UID: "uid-0"}, Spec: corev1.PodSpec{ServiceAccountName: "worker"}}
	namesake := workerPod.DeepCopy()
	namesake.UID = "uid-1"
	for name, test := range map[string]struct {
		lock *v1alpha1.Lock
		live []client.Object
		user string
		want bool
	}{
		"counts as the holder":                 {lock, []client.Object{workerPod}, "system:serviceaccount:shop:worker", true},
		"not another account":                  {lock, []client.Object{workerPod}, "system:serviceaccount:shop:other", false},
		"not the account of another namespace": {lock, []client.Object{workerPod}, "system:serviceaccount:other:worker", false},
		"not that of a later Pod of the name":  {lock, []client.Object{namesake}, "system:serviceaccount:shop:worker", false},
		"not that of a Pod that is gone":       {lock, nil, "system:serviceaccount:shop:worker", false},
		"not that of a Job":                    {ofJob, []client.Object{workerPod}, "system:serviceaccount:shop:worker", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []client.Object{test.lock}, append(test.live, test.lock))
			if response := w.ask(t, request(t, admissionv1.Update, configMaps, settings(), settings()), test.user); response.Allowed != test.want {
				t.Errorf("got %+v", response)
			}
		})
	}
}

func TestAnObjectOfTwoLocksIsWrittenByTheHolderOfBoth(t *testing.T) {
	first := guarded(t, "first")
	second := guarded(t, "second")
	foreign := guarded(t, "second")
	foreign.Spec.Holder = bob
	asked := request(t, admissionv1.Update, configMaps, settings(), settings())
	w := newWorld(t, []client.Object{first, second}, []client.Object{first, second})
	if response := w.ask(t, asked, alice); !response.Allowed || len(w.records.All()) != 2 {
		t.Errorf("got %+v and %d records, want one for each lock", response, len(w.records.All()))
	}
	w = newWorld(t, []client.Object{first, foreign}, []client.Object{first, foreign})
	for _, user := range []string{alice, bob} {
		if response := w.ask(t, asked, user); !isGuarded(response) {
			t.Errorf("%s: got %+v", user, response)
		}
	}
}

func TestRefusalSaysWhatToDo(t *testing.T) {
	lock := guarded(t, "deploy:web")
	w := newWorld(t, []client.Object{lock}, []client.Object{lock})
	response := w.ask(t, request(t, admissionv1.Update, configMaps, settings(), settings()), bob)
	if response.Allowed || response.Result.Status != metav1.StatusFailure || response.Result.Code != 403 || response.Result.Reason != metav1.StatusReasonForbidden {
		t.Fatalf("got %+v", response)
	}
	for _, want := range []string{`configmaps "settings" is forbidden`, "lock:deploy:web", `"deploy--web"`, alice, lock.Spec.AcquireTime.String(),
		lock.Spec.ExpireTime.String(), "rollout", "force-release", `namespace "shop"`} {
		if !strings.Contains(response.Result.Message, want) {
			t.Errorf("%q does not say %s", response.Result.Message, want)
		}
	}
	if strings.Contains(response.Result.Message, "token-a") {
		t.Error("it has the owner token")
	}
}

func TestReadsThatFailCloseTheGuard(t *testing.T) {
	lock := guarded(t, "deploy:web")
	broken := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("the API server is away")
	}}
	w := newWorld(t, []client.Object{lock}, nil)
	w.admission.LiveReader = newCluster(t).WithInterceptorFuncs(broken).Build()
	response := w.ask(t, request(t, admissionv1.Update, configMaps, settings(), settings()), bob)
	if response.Allowed || isGuarded(response) || response.Result.Reason != metav1.StatusReasonInternalError ||
		response.Result.Status != metav1.StatusFailure || response.Result.Code != 500 {
		t.Errorf("got %+v", response)
	}
	if records := w.records.All(); len(records) != 1 || records[0].Event != audit.WriteRefused || records[0].Reason != audit.Failed ||
		records[0].Lock != lock.Name || records[0].Namespace != lock.Namespace {
		t.Errorf("recorded %+v", records)
	}
}

func TestAPodThatCannotBeReadClosesTheGuard(t *testing.T) {
	lock := guarded(t, "deploy:web", func(l *v1alpha1.Lock) {
		l.Spec.HolderRef = &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "uid-0"}
	})
	w := newWorld(t, []client.Object{lock}, nil)
	w.admission.LiveReader = newCluster(t, lock).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, reader client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, isPod := object.(*corev1.Pod); isPod {
				return errors.New("the API server is away")
			}
			return reader.Get(ctx, key, object, options...)
		},
	}).Build()
	response := w.ask(t, request(t, admissionv1.Update, configMaps, settings(), settings()), "system:serviceaccount:shop:worker")
	if response.Allowed || isGuarded(response) {
		t.Errorf("got %+v", response)
	}
	if records := w.records.All(); len(records) != 1 || records[0].Reason != audit.Failed || records[0].Lock != lock.Name {
		t.Errorf("recorded %+v", records)
	}
}

// The lock that fences the object is read, and counts once though the cache knows it, too.
func TestAFencedWriteOfTheHolderCostsOneReadAndLeavesOneRecord(t *testing.T) {
	lock := guarded(t, "deploy:web")
	fenced := settings(func(c *corev1.ConfigMap) {
		c.Annotations = map[string]string{v1alpha1.FencedByAnnotation: "deploy:web"}
	})
	w := newWorld(t, []client.Object{lock}, []client.Object{lock})
	if response := w.ask(t, request(t, admissionv1.Update, configMaps, fenced, fenced), alice); !response.Allowed {
		t.Errorf("got %+v", response)
	}
	if records := w.records.All(); len(records) != 1 || w.reads != 1 {
		t.Errorf("got %d records and %d reads", len(records), w.reads)
	}
}

func TestRecords(t *testing.T) {
	lock := guarded(t, "deploy:web")
	lock.UID, lock.Spec.FencingToken = "uid", new(int64(7))
	of := func(event audit.Event, user string) audit.Record {
		record := audit.Of(event, audit.Admission, lock)
		record.Time, record.Actor, record.Operation = v1alpha1.NewTimestamp(noon.Add(time.Second)), user, "update"
		record.Object = &audit.Object{Resource: "configmaps", Name: "settings"}
		record.ResourceVersion = "999" // The client of the fake API server stores it in that version.
		return record
	}
	refused := of(audit.WriteRefused, bob)
	refused.Reason, refused.Message = audit.Guarded, (&rules.GuardedError{Lock: lock}).Error()
	asked := request(t, admissionv1.Update, configMaps, settings(), settings())
	dry := asked
	dry.DryRun = new(true)
	for name, test := range map[string]struct {
		asked admission.Request
		user  string
		want  []audit.Record
	}{
		"the holder":                {asked, alice, []audit.Record{of(audit.WriteAdmitted, alice)}},
		"another user":              {asked, bob, []audit.Record{refused}},
		"the holder, in a dry run":  {dry, alice, nil},
		"another user in a dry run": {dry, bob, nil},
		"the operator":              {asked, operator, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []client.Object{lock}, []client.Object{lock})
			w.ask(t, test.asked, test.user)
			if diff := cmp.Diff(test.want, w.records.All()); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheConfigurationExemptsTheOperator: the API server must not ask the operator about its own
// writes while no operator serves.
func TestTheConfigurationExemptsTheOperator(t *testing.T) {
	text, err := os.ReadFile("../../config/guards/webhook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(text, &configuration); err != nil {
		t.Fatal(err)
	}
	want := admissionregistrationv1.MatchCondition{Name: "not-the-operator", Expression: "request.userInfo.username != '" + operator + "'"}
	if conditions := configuration.Webhooks[0].MatchConditions; !slices.Contains(conditions, want) {
		t.Errorf("the conditions are %v", conditions)
	}
}

func TestAGuardNeedsAClockSkewAllowance(t *testing.T) {
	if err := (&guard.Admission{}).SetupWithManager(nil); err == nil {
		t.Error("a guard without an allowance is set up")
	}
}
