package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/rules"
)

var recordedAt = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// stamp is a time relative to that of the record.
func stamp(after time.Duration) *v1alpha1.Timestamp {
	return new(v1alpha1.NewTimestamp(recordedAt.Add(after)))
}

// storedLock was granted to alice a minute before, for the ttl.
func storedLock(ttl time.Duration, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	stored := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "k", UID: "uid", ResourceVersion: "7"},
		Spec: v1alpha1.LockSpec{
			Key: "k", Owner: "token-a", Holder: "alice", HolderUID: "1",
			AcquireTime: stamp(-time.Minute), RenewTime: stamp(-time.Minute), ExpireTime: stamp(ttl - time.Minute),
		},
	}
	for _, change := range changes {
		change(stored)
	}
	return stored
}

func marked(l *v1alpha1.Lock) { l.DeletionTimestamp = &metav1.Time{Time: recordedAt} }

func renewed(l *v1alpha1.Lock) {
	l.Spec.FencingToken, l.Spec.RenewTime, l.Spec.ExpireTime = new(int64(7)), stamp(0), stamp(time.Hour)
}

func grantedTo(to string) func(*v1alpha1.Lock) {
	return func(l *v1alpha1.Lock) {
		l.Spec.Holder, l.Spec.Owner, l.Spec.AcquireTime, l.Spec.RenewTime = to, "token-"+to, stamp(0), stamp(0)
	}
}

func TestWhatAdmissionLetsPassIsOnRecordOnce(t *testing.T) {
	const create, update, remove = admissionv1.Create, admissionv1.Update, admissionv1.Delete
	cases := map[string]struct {
		operation admissionv1.Operation
		user      string
		old, next *v1alpha1.Lock
		isDryRun  bool
		// want has event, reason, actor, fencing token and UID of each record.
		want []string
	}{
		"a grant":                               {create, "alice", nil, storedLock(time.Hour), false, []string{"Granted  alice 0 "}},
		"a grant in a dry run":                  {create, "alice", nil, storedLock(time.Hour), true, nil},
		"a renewal":                             {update, "alice", storedLock(time.Hour), storedLock(time.Hour, renewed), false, []string{"Renewed  alice 7 uid"}},
		"a renewal in a dry run":                {update, "alice", storedLock(time.Hour), storedLock(time.Hour, renewed), true, nil},
		"a label":                               {update, "bob", storedLock(time.Hour), storedLock(time.Hour), false, nil},
		"a hand-off":                            {update, "alice", storedLock(time.Hour), storedLock(time.Hour, grantedTo("alice")), false, []string{"Released PassedOn alice 7 uid", "HandedOn  alice 0 uid"}},
		"a take-over":                           {update, "bob", storedLock(time.Second), storedLock(time.Hour, grantedTo("bob")), false, []string{"Expired Replaced bob 7 uid", "TakenOver  bob 0 uid"}},
		"a release":                             {remove, "alice", storedLock(time.Hour), nil, false, []string{"Released ByOwner alice 7 uid"}},
		"a release in a dry run":                {remove, "alice", storedLock(time.Hour), nil, true, nil},
		"a release that finalizers put off":     {remove, "alice", storedLock(time.Hour, marked), nil, false, nil},
		"the removal of its last finalizer":     {update, "alice", storedLock(time.Hour, marked), storedLock(time.Hour, marked), false, nil},
		"a forced release":                      {remove, "bob", storedLock(time.Hour), nil, false, []string{"ForceReleased ByForce bob 7 uid"}},
		"a forced release in a dry run":         {remove, "bob", storedLock(time.Hour), nil, true, []string{"ForceReleased ByForce bob 7 uid dry run"}},
		"a forced release of what is put off":   {remove, "bob", storedLock(time.Hour, marked), nil, false, []string{"ForceReleased ByForce bob 0 uid"}},
		"the delete of an expired lock":         {remove, "bob", storedLock(time.Second), nil, false, []string{"Expired Reaped bob 7 uid"}},
		"the delete of an expired lock, marked": {remove, "bob", storedLock(time.Second, marked), nil, false, nil},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			records := &audittest.Recorder{}
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: test.operation, UserInfo: authenticationv1.UserInfo{Username: test.user}, DryRun: &test.isDryRun,
			}}
			NewAudit(records, clocktesting.NewFakePassiveClock(recordedAt)).record(request, decision{old: test.old, next: test.next, response: admission.Allowed("")})
			var got []string
			for _, record := range records.All() {
				text := fmt.Sprint(record.Event, " ", record.Reason, " ", record.Actor, " ", record.FencingToken, " ", record.UID)
				if record.DryRun {
					text += " dry run"
				}
				got = append(got, text)
				if !record.Admitted {
					t.Errorf("%s is not marked as admitted", record.Event)
				}
				if record.OwnerHash != lock.Fingerprint("token-a") && record.HeldSeconds != nil || !record.Time.Equal(stamp(0)) && record.Event != audit.Granted {
					t.Errorf("recorded %+v", record)
				}
				if line, err := json.Marshal(record); err != nil || strings.Contains(string(line), "token-") {
					t.Errorf("an owner token is told: %s, %v", line, err)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEndOfALock(t *testing.T) {
	owned := func(l *v1alpha1.Lock) { l.OwnerReferences = []metav1.OwnerReference{{Name: "pod"}} }
	why := func(l *v1alpha1.Lock) {
		l.Annotations = map[string]string{v1alpha1.ForceReleaseReasonAnnotation: "stuck"}
	}
	cases := map[string]struct {
		lock *v1alpha1.Lock
		user string
		want string
	}{
		"the holder":                                       {storedLock(time.Hour), "alice", "Released ByOwner  60"},
		"the holder, by its UID":                           {storedLock(time.Hour), "alice/1", "Released ByOwner  60"},
		"a later account":                                  {storedLock(time.Hour, why), "alice/2", "ForceReleased ByForce stuck 60"},
		"the holder, too late":                             {storedLock(30 * time.Second), "alice", "Expired Reaped  30"},
		"another user":                                     {storedLock(time.Hour, why), "bob", "ForceReleased ByForce stuck 60"},
		"the namespace controller":                         {storedLock(time.Hour), namespaceCleaner, "Released NamespaceDeleted  60"},
		"the garbage collector":                            {storedLock(time.Hour, owned), garbageCollector, "Released OwnersGone  60"},
		"the controller manager, of a lock with owners":    {storedLock(time.Hour, owned), controllerManager, "Released OwnersGone  60"},
		"the controller manager, of a lock without owners": {storedLock(time.Hour), controllerManager, "Released NamespaceDeleted  60"},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			name, uid, _ := strings.Cut(test.user, "/")
			got := ended(test.lock, rules.User{Name: name, UID: uid}, recordedAt)
			if text := fmt.Sprint(got.Event, " ", got.Reason, " ", got.Message, " ", *got.HeldSeconds); text != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
		})
	}
}

// A review may be forged, and of any size. What is recorded of it is not.
func TestRecordsOfAdmittedChangesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	records := &audittest.Recorder{}
	forged := storedLock(time.Hour, func(l *v1alpha1.Lock) {
		l.Namespace, l.Name, l.UID, l.Spec.Key, l.Spec.Holder = long, long, types.UID(long), long, long
	})
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Delete, UserInfo: authenticationv1.UserInfo{Username: long}}}
	NewAudit(records, clocktesting.NewFakePassiveClock(recordedAt)).record(request, decision{old: forged, response: admission.Allowed("")})
	line, err := json.Marshal(records.All())
	if err != nil || len(records.All()) != 1 || len(line) > 10_000 {
		t.Errorf("%d bytes are recorded, in %d records: %v", len(line), len(records.All()), err)
	}
}
