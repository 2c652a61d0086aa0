package rules

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// manifest is what a user writes by hand.
func manifest(changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	lock := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "billing--report"},
		Spec:       v1alpha1.LockSpec{Key: "billing:report", Scope: v1alpha1.ScopeGlobal, Owner: "token-a", TTL: &v1alpha1.Duration{Duration: 30 * time.Second}},
	}
	for _, change := range changes {
		change(lock)
	}
	return lock
}

func TestAdmitCreate(t *testing.T) {
	absolute := at(86400)
	cases := map[string]struct {
		submitted  *v1alpha1.Lock
		wantName   string
		wantExpire *v1alpha1.Timestamp
		wantTTL    *v1alpha1.Duration
	}{
		"a ttl is counted from now": {
			submitted: manifest(), wantName: "billing--report", wantExpire: at(30), wantTTL: &v1alpha1.Duration{Duration: 30 * time.Second}},
		"no ttl means the default": {
			submitted: manifest(func(l *v1alpha1.Lock) { l.Spec.TTL = nil }), wantName: "billing--report", wantExpire: at(300), wantTTL: &v1alpha1.Duration{Duration: 5 * time.Minute}},
		"an absolute time stays as it is": {
			submitted: manifest(func(l *v1alpha1.Lock) { l.Spec.TTL, l.Spec.ExpireTime = nil, absolute }), wantName: "billing--report", wantExpire: absolute},
		"a missing name is filled in": {
			submitted: manifest(func(l *v1alpha1.Lock) { l.Name, l.GenerateName = "", "any-" }), wantName: "billing--report", wantExpire: at(30), wantTTL: &v1alpha1.Duration{Duration: 30 * time.Second}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got, _, err := AdmitCreate(test.submitted, User{Name: "alice"}, DefaultLimits(), noon)
			if err != nil {
				t.Fatal(err)
			}
			want := test.submitted.DeepCopy()
			want.Name = test.wantName
			want.Spec.Holder, want.Spec.AcquireTime, want.Spec.RenewTime = "alice", at(0), at(0)
			want.Spec.ExpireTime, want.Spec.TTL = test.wantExpire, test.wantTTL
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdmitCreateRefuses(t *testing.T) {
	token := int64(1)
	cases := map[string]struct {
		change func(*v1alpha1.Lock)
		want   []string
	}{
		"an invisible key": {func(l *v1alpha1.Lock) { l.Name, l.Spec.Key = "", "a\u200b" }, []string{"spec.key", "character 2 is U+200B"}},
		"an invisible function": {func(l *v1alpha1.Lock) { l.Name, l.Spec.Scope, l.Spec.Function = "", v1alpha1.ScopeFunction, "f " },
			[]string{"spec.function", "character 2 is U+0020"}},
		"another name":              {func(l *v1alpha1.Lock) { l.Name = "report" }, []string{"metadata.name", `must be "billing--report"`}},
		"a foreign holder":          {func(l *v1alpha1.Lock) { l.Spec.Holder = "root" }, []string{"spec.holder"}},
		"an acquireTime":            {func(l *v1alpha1.Lock) { l.Spec.AcquireTime = at(-60) }, []string{"spec.acquireTime"}},
		"a renewTime":               {func(l *v1alpha1.Lock) { l.Spec.RenewTime = at(60) }, []string{"spec.renewTime"}},
		"a fencing token":           {func(l *v1alpha1.Lock) { l.Spec.FencingToken = &token }, []string{"spec.fencingToken"}},
		"ttl and expireTime":        {func(l *v1alpha1.Lock) { l.Spec.ExpireTime = at(60) }, []string{"spec.expireTime", "one of the two"}},
		"a ttl of zero":             {func(l *v1alpha1.Lock) { l.Spec.TTL.Duration = 0 }, []string{"spec.ttl", "at most 24h"}},
		"a ttl below a millisecond": {func(l *v1alpha1.Lock) { l.Spec.TTL.Duration = time.Microsecond }, []string{"spec.ttl", "at least 1ms"}},
		"a finalizer":               {func(l *v1alpha1.Lock) { l.Finalizers = []string{"example.com/keep"} }, []string{"metadata.finalizers"}},
		"a ttl over the maximum":    {func(l *v1alpha1.Lock) { l.Spec.TTL.Duration = 25 * time.Hour }, []string{"spec.ttl", "at most 24h"}},
		"an expireTime in the past": {func(l *v1alpha1.Lock) { l.Spec.TTL, l.Spec.ExpireTime = nil, at(0) },
			[]string{"spec.expireTime", "in the future"}},
		"an expireTime in a far century": {func(l *v1alpha1.Lock) { l.Spec.TTL, l.Spec.ExpireTime = nil, at(1e9) },
			[]string{"spec.expireTime", "at most 366 days"}},
		"several faults, each reported": {func(l *v1alpha1.Lock) { l.Spec.Key, l.Spec.Owner, l.Spec.Holder = "", "", "root" },
			[]string{"spec.key", "spec.owner", "spec.holder"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := AdmitCreate(manifest(test.change), User{Name: "alice"}, DefaultLimits(), noon)
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// An earlier release granted keys that only differ in what nobody sees.
func TestALockUnderAnInvisibleKeyIsOnlyKept(t *testing.T) {
	old := stored()
	old.Spec.Key, old.Spec.ExpireTime = "deploy\u200b", at(60)
	old.Name = old.Spec.FullKey().ObjectName()
	changes := map[string]func(*v1alpha1.Lock){
		"a renewal":      func(l *v1alpha1.Lock) { l.Spec.TTL = &v1alpha1.Duration{Duration: 2 * time.Minute} },
		"another reason": func(l *v1alpha1.Lock) { l.Spec.Reason = "still" },
		"a label":        func(l *v1alpha1.Lock) { l.Labels = map[string]string{"team": "a"} },
	}
	for name, alter := range changes {
		t.Run(name, func(t *testing.T) {
			next := old.DeepCopy()
			alter(next)
			if _, _, err := AdmitUpdate(change(t, old, next, old.Spec.Holder), DefaultLimits(), noon.Add(time.Second), 0); err != nil {
				t.Error(err)
			}
		})
	}
	next := old.DeepCopy()
	next.Spec.Owner, next.Spec.Reason = "token-b", "mine"
	_, _, err := AdmitUpdate(change(t, old, next, "bob"), DefaultLimits(), noon.Add(time.Hour), 0)
	if !errors.Is(err, ErrInvalidKey) {
		t.Errorf("taken over when it has expired: %v", err)
	}
}

// referenced is a lock that names the object it is held for, and has an owner.
func referenced() *v1alpha1.Lock {
	lock := stored()
	lock.Spec.Reason = "monthly close"
	lock.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "team", UID: "config-0"}}
	lock.Spec.HolderRef = &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "pod-1"}
	return lock
}

// change is the change from old to updated as the API server presents it.
func change(t *testing.T, old, updated *v1alpha1.Lock, user string) Change {
	t.Helper()
	before, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	after, err := json.Marshal(updated)
	if err != nil {
		t.Fatal(err)
	}
	isUnchanged, err := IsUnchanged(before, after)
	if err != nil {
		t.Fatal(err)
	}
	return Change{Old: old, Updated: updated, IsUnchanged: isUnchanged, User: User{Name: user}}
}

func applied(lock *v1alpha1.Lock) {
	metav1.SetMetaDataAnnotation(&lock.ObjectMeta, corev1.LastAppliedConfigAnnotation, "{}")
}

func serverSideApplied(lock *v1alpha1.Lock) { appliedFields(lock, `{"f:spec":{"f:key":{}}}`) }

func serverSideLabelled(lock *v1alpha1.Lock) {
	appliedFields(lock, `{"f:metadata":{"f:labels":{"f:team":{}}}}`)
}

func appliedFields(lock *v1alpha1.Lock, fields string) {
	lock.ManagedFields = append(lock.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "argocd", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(fields),
	})
}

func TestAdmitUpdate(t *testing.T) {
	minute := v1alpha1.Duration{Duration: time.Minute}
	recorded := int64(41)
	another := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "settings", UID: "config-1"}
	cases := map[string]struct {
		user    string
		now     float64
		change  func(*v1alpha1.Lock)
		want    func(*v1alpha1.Lock)
		wantErr error
	}{
		"a label leaves the grant alone and records its token": {
			user: "stranger", now: 10,
			change: func(l *v1alpha1.Lock) { l.Labels["team"] = "finance" },
			want:   func(l *v1alpha1.Lock) { l.Labels["team"], l.Spec.FencingToken = "finance", &recorded },
		},
		"another ttl renews from now": {
			user: "alice", now: 10,
			change: func(l *v1alpha1.Lock) { l.Spec.TTL = &minute },
			want: func(l *v1alpha1.Lock) {
				l.Spec.TTL, l.Spec.RenewTime, l.Spec.ExpireTime, l.Spec.FencingToken = &minute, at(10), at(70), &recorded
			},
		},
		"an absolute expireTime in place of the ttl": {
			user: "alice", now: 10,
			change: func(l *v1alpha1.Lock) { l.Spec.TTL, l.Spec.ExpireTime = nil, at(1000) },
			want: func(l *v1alpha1.Lock) {
				l.Spec.TTL, l.Spec.RenewTime, l.Spec.ExpireTime, l.Spec.FencingToken = nil, at(10), at(1000), &recorded
			},
		},
		"a reason does not renew": {
			user: "alice", now: 10,
			change: func(l *v1alpha1.Lock) { l.Spec.Reason = "quarterly close" },
			want:   func(l *v1alpha1.Lock) { l.Spec.Reason, l.Spec.FencingToken = "quarterly close", &recorded },
		},
		"a manifest that leaves the stamps out keeps them": {
			user: "alice", now: 10,
			change: func(l *v1alpha1.Lock) {
				reason, ref := l.Spec.Reason, l.Spec.HolderRef
				l.Spec = manifest().Spec
				l.Spec.Reason, l.Spec.HolderRef = reason, ref
				l.Labels["a"] = "b"
			},
			want: func(l *v1alpha1.Lock) { l.Labels["a"], l.Spec.FencingToken = "b", &recorded },
		},
		"an expired lock is taken over": {
			user: "bob", now: 31,
			change: func(l *v1alpha1.Lock) { l.Spec.Owner, l.Spec.TTL = "token-b", &minute },
			want: func(l *v1alpha1.Lock) {
				l.OwnerReferences, l.Spec.HolderRef, l.Spec.Reason = nil, nil, ""
				l.Spec.Owner, l.Spec.Holder, l.Spec.TTL = "token-b", "bob", &minute
				l.Spec.AcquireTime, l.Spec.RenewTime, l.Spec.ExpireTime = at(31), at(31), at(91)
			},
		},
		"the former holder takes it over with the same owner": {
			user: "alice", now: 31,
			change: func(l *v1alpha1.Lock) { l.Spec.TTL = &minute },
			want: func(l *v1alpha1.Lock) {
				l.Spec.TTL, l.Spec.AcquireTime, l.Spec.RenewTime, l.Spec.ExpireTime = &minute, at(31), at(31), at(91)
			},
		},
		"an expired lock that is applied as it is, is acquired anew": {
			user: "alice", now: 31,
			change: func(*v1alpha1.Lock) {},
			want: func(l *v1alpha1.Lock) {
				l.Spec.AcquireTime, l.Spec.RenewTime, l.Spec.ExpireTime = at(31), at(31), at(61)
			},
		},
		"a label on an expired lock is no take-over": {
			user: "bob", now: 31,
			change: func(l *v1alpha1.Lock) { l.Labels["team"] = "finance" },
			want:   func(l *v1alpha1.Lock) { l.Labels["team"], l.Spec.FencingToken = "finance", &recorded },
		},
		"a change that changes nothing records the token": {
			user: "bob", now: 10,
			change: func(*v1alpha1.Lock) {},
			want:   func(l *v1alpha1.Lock) { l.Spec.FencingToken = &recorded },
		},
		"a take-over drops what would act for the former holder": {
			user: "bob", now: 31,
			change: func(l *v1alpha1.Lock) { l.Spec.Owner = "token-b" },
			want: func(l *v1alpha1.Lock) {
				l.OwnerReferences, l.Spec.HolderRef, l.Spec.Reason = nil, nil, ""
				l.Spec.Owner, l.Spec.Holder = "token-b", "bob"
				l.Spec.AcquireTime, l.Spec.RenewTime, l.Spec.ExpireTime = at(31), at(31), at(61)
			},
		},
		"one that another of the same account takes over, too": {
			user: "alice", now: 31,
			change: func(l *v1alpha1.Lock) { l.Spec.Owner = "token-b" },
			want: func(l *v1alpha1.Lock) {
				l.OwnerReferences, l.Spec.HolderRef, l.Spec.Reason = nil, nil, ""
				l.Spec.Owner, l.Spec.AcquireTime, l.Spec.RenewTime, l.Spec.ExpireTime = "token-b", at(31), at(31), at(61)
			},
		},
		"a take-over brings its own owner references": {
			user: "bob", now: 31,
			change: func(l *v1alpha1.Lock) { l.Spec.Owner, l.OwnerReferences[0].UID = "token-b", "pod-2" },
			want: func(l *v1alpha1.Lock) {
				l.OwnerReferences[0].UID, l.Spec.HolderRef, l.Spec.Reason = "pod-2", nil, ""
				l.Spec.Owner, l.Spec.Holder = "token-b", "bob"
				l.Spec.AcquireTime, l.Spec.RenewTime, l.Spec.ExpireTime = at(31), at(31), at(61)
			},
		},
		"labels that are applied are no claim": {
			user: "bob", now: 10,
			change: serverSideLabelled,
			want:   func(l *v1alpha1.Lock) { serverSideLabelled(l); l.Spec.FencingToken = &recorded },
		},
		"nor do they acquire an expired lock": {
			user: "alice", now: 31,
			change: serverSideLabelled,
			want:   func(l *v1alpha1.Lock) { serverSideLabelled(l); l.Spec.FencingToken = &recorded },
		},
		"a stranger's write without a change leaves an expired lock to its holder": {
			user: "storage-migrator", now: 31,
			change: func(*v1alpha1.Lock) {},
			want:   func(l *v1alpha1.Lock) { l.Spec.FencingToken = &recorded },
		},
		"the garbage collector takes references off": {
			user: garbageCollectors[0], now: 10,
			change: func(l *v1alpha1.Lock) { l.OwnerReferences = nil },
			want:   func(l *v1alpha1.Lock) { l.OwnerReferences, l.Spec.FencingToken = nil, &recorded },
		},
		"the garbage collector takes references off in another's name": {
			user: garbageCollectors[1], now: 10,
			change: func(l *v1alpha1.Lock) { l.OwnerReferences = nil },
			want:   func(l *v1alpha1.Lock) { l.OwnerReferences, l.Spec.FencingToken = nil, &recorded },
		},
		"others do not":           {user: "bob", now: 10, change: func(l *v1alpha1.Lock) { l.OwnerReferences = nil }, wantErr: ErrInvalid},
		"an object read long ago": {user: "alice", now: 10, change: func(l *v1alpha1.Lock) { l.ResourceVersion, l.Spec.RenewTime = "40", at(5) }, wantErr: ErrStale},
		"the holder may name an owner of the object": {
			user: "alice", now: 10,
			change: func(l *v1alpha1.Lock) { l.OwnerReferences = append(l.OwnerReferences, another) },
			want: func(l *v1alpha1.Lock) {
				l.OwnerReferences, l.Spec.FencingToken = append(l.OwnerReferences, another), &recorded
			},
		},
		"others may not":                        {user: "bob", now: 10, change: func(l *v1alpha1.Lock) { l.OwnerReferences[0].Name = "worker-1" }, wantErr: ErrInvalid},
		"a finalizer is added":                  {user: "alice", now: 10, change: func(l *v1alpha1.Lock) { l.Finalizers = []string{"example.com/keep"} }, wantErr: ErrInvalid},
		"the token of the former holder":        {user: "bob", now: 31, change: func(l *v1alpha1.Lock) { l.Spec.TTL = &minute }, wantErr: ErrInvalid},
		"a manifest applied by another user":    {user: "bob", now: 10, change: applied, wantErr: ErrHeld},
		"one applied on the server's side":      {user: "bob", now: 10, change: serverSideApplied, wantErr: ErrHeld},
		"one applied within the clock skew":     {user: "alice", now: 30.5, change: applied, wantErr: ErrHeld},
		"a live lock keeps its owner":           {user: "alice", now: 10, change: func(l *v1alpha1.Lock) { l.Spec.Owner = "token-b" }, wantErr: ErrHeld},
		"so it does within the clock skew":      {user: "bob", now: 30.5, change: func(l *v1alpha1.Lock) { l.Spec.Owner = "token-b" }, wantErr: ErrHeld},
		"only the holder changes the ttl":       {user: "bob", now: 10, change: func(l *v1alpha1.Lock) { l.Spec.TTL = &minute }, wantErr: ErrHeld},
		"only the holder changes the reason":    {user: "bob", now: 10, change: func(l *v1alpha1.Lock) { l.Spec.Reason = "x" }, wantErr: ErrHeld},
		"the holder is set":                     {user: "alice", now: 10, change: func(l *v1alpha1.Lock) { l.Spec.Holder = "bob" }, wantErr: ErrInvalid},
		"a stamp is back-dated":                 {user: "alice", now: 10, change: func(l *v1alpha1.Lock) { l.Spec.RenewTime = at(5) }, wantErr: ErrInvalid},
		"the fencing token is set":              {user: "alice", now: 10, change: func(l *v1alpha1.Lock) { l.Spec.FencingToken = &recorded }, wantErr: ErrInvalid},
		"expireTime is set beside a ttl":        {user: "alice", now: 10, change: func(l *v1alpha1.Lock) { l.Spec.ExpireTime = at(1000) }, wantErr: ErrInvalid},
		"an expireTime in the past":             {user: "alice", now: 10, change: func(l *v1alpha1.Lock) { l.Spec.TTL, l.Spec.ExpireTime = nil, at(5) }, wantErr: ErrInvalid},
		"a ttl over the maximum":                {user: "alice", now: 10, change: func(l *v1alpha1.Lock) { l.Spec.TTL = &v1alpha1.Duration{Duration: 25 * time.Hour} }, wantErr: ErrInvalid},
		"a take-over with a ttl over the bound": {user: "bob", now: 31, change: func(l *v1alpha1.Lock) { l.Spec.TTL = &v1alpha1.Duration{Duration: 25 * time.Hour} }, wantErr: ErrInvalid},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			submitted := referenced()
			test.change(submitted)
			got, _, err := AdmitUpdate(change(t, referenced(), submitted, test.user), DefaultLimits(), at(test.now).Time, time.Second)
			if test.wantErr != nil {
				if !errors.Is(err, test.wantErr) {
					t.Errorf("got %v, want %v", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := referenced()
			test.want(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAdmitUpdateOfALapsedFreeze shows that an absolute time that has passed is not
// silently replaced by the default ttl.
func TestAdmitUpdateOfALapsedFreeze(t *testing.T) {
	freeze := stored()
	freeze.Spec.TTL = nil
	submitted := freeze.DeepCopy()
	submitted.Spec.Owner = "token-b"
	_, _, err := AdmitUpdate(change(t, freeze, submitted, "bob"), DefaultLimits(), noon.Add(time.Hour), time.Second)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "in the future") {
		t.Errorf("got %v, want a refusal of the time in the past", err)
	}
}

// TestAdmitUpdateDropsTheTokenOfTheFormerGrant shows that a take-over does not pass
// the number of the former holder on to the next one.
func TestAdmitUpdateDropsTheTokenOfTheFormerGrant(t *testing.T) {
	old := stored()
	old.Spec.FencingToken = new(int64(40))
	submitted := old.DeepCopy()
	submitted.Spec.Owner = "token-b"
	got, _, err := AdmitUpdate(change(t, old, submitted, "bob"), DefaultLimits(), noon.Add(time.Minute), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.FencingToken != nil {
		t.Errorf("the new grant carries the token %d", *got.Spec.FencingToken)
	}
}

// TestAdmitUpdateDistinguishesGrantsOfOneMoment has the clock stand where the former
// grant was made.
func TestAdmitUpdateDistinguishesGrantsOfOneMoment(t *testing.T) {
	old := stored()
	old.Spec.AcquireTime = at(60)
	submitted := old.DeepCopy()
	submitted.Spec.Owner = "token-b"
	got, _, err := AdmitUpdate(change(t, old, submitted, "bob"), DefaultLimits(), noon.Add(time.Minute), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.AcquireTime.Equal(old.Spec.AcquireTime) {
		t.Error("two grants have the same acquireTime")
	}
}

func TestAdmitUpdateOfALockThatIsBeingDeleted(t *testing.T) {
	old := stored()
	old.DeletionTimestamp = &metav1.Time{Time: noon}
	submitted := old.DeepCopy()
	submitted.Labels["team"] = "finance"
	got, _, err := AdmitUpdate(change(t, old, submitted, "garbage-collector"), DefaultLimits(), noon, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.FencingToken != nil {
		t.Errorf("the token %d is recorded although the delete has moved the resourceVersion", *got.Spec.FencingToken)
	}
}

func TestAServerSideApplyAgainChangesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		user, manager string
		isLeftAlone   bool
	}{
		"by the holder":                        {"alice", "argocd", true},
		"a write under the name of no applier": {"alice", "storage-version-migrator", false},
		"a write without a manager's name":     {"alice", "", false},
		"a write by another user":              {"bob", "storage-version-migrator", false},
	} {
		t.Run(name, func(t *testing.T) {
			old := stored()
			serverSideApplied(old)
			again := change(t, old, old.DeepCopy(), test.user)
			again.FieldManager = test.manager
			got, _, err := AdmitUpdate(again, DefaultLimits(), at(10).Time, 0)
			if err != nil {
				t.Fatal(err)
			}
			if (got.Spec.FencingToken == nil) != test.isLeftAlone {
				t.Errorf("the token is %v", got.Spec.FencingToken)
			}
		})
	}
}

func TestAReleaseOfHelmIsAClaim(t *testing.T) {
	at := v1alpha1.NewTimestamp(time.Now())
	expire := v1alpha1.NewTimestamp(at.Add(time.Hour))
	old := &v1alpha1.Lock{}
	old.ResourceVersion = "7"
	old.Annotations = map[string]string{"meta.helm.sh/release-name": "shop"}
	old.Spec = v1alpha1.LockSpec{
		Key: "key", Owner: "owner", Holder: "alice", TTL: &v1alpha1.Duration{Duration: time.Hour}, AcquireTime: &at, RenewTime: &at, ExpireTime: &expire,
	}
	set := func(name, value string) func(*v1alpha1.Lock) {
		return func(l *v1alpha1.Lock) { metav1.SetMetaDataAnnotation(&l.ObjectMeta, name, value) }
	}
	cases := map[string]struct {
		user       string
		change     func(*v1alpha1.Lock)
		wantIsHeld bool
	}{
		"by another user":                      {"bob", set("meta.helm.sh/release-name", "mine"), true},
		"in another namespace by another user": {"bob", set("meta.helm.sh/release-namespace", "mine"), true},
		"by the holder":                        {"alice", set("meta.helm.sh/release-name", "mine"), false},
		"left as it is by another user":        {"bob", set("example.com/note", "a"), false},
		"removed by another user":              {"bob", func(l *v1alpha1.Lock) { l.Annotations = nil }, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			updated := old.DeepCopy()
			test.change(updated)
			_, _, err := AdmitUpdate(Change{Old: old, Updated: updated, User: User{Name: test.user}}, DefaultLimits(), time.Now(), 0)
			if _, isHeld := errors.AsType[*HeldError](err); isHeld != test.wantIsHeld || !isHeld && err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestIsUnchanged(t *testing.T) {
	const stored = `{"metadata":{"name":"a","managedFields":[{"manager":"m","time":"2026-11-20T10:00:00Z"}]},"spec":{"ttl":"60m"}}`
	cases := map[string]struct {
		updated string
		want    bool
	}{
		"the same":                     {stored, true},
		"managed at another time":      {strings.Replace(stored, "10:00", "11:00", 1), true},
		"with an empty creation time":  {strings.Replace(stored, `"name"`, `"creationTimestamp":null,"generation":7,"name"`, 1), true},
		"with another label":           {strings.Replace(stored, `"name"`, `"labels":{"a":"b"},"name"`, 1), false},
		"managed by another user":      {strings.Replace(stored, `"m"`, `"n"`, 1), false},
		"the same ttl in other words":  {strings.Replace(stored, "60m", "1h", 1), false},
		"an empty reason beside none":  {strings.Replace(stored, `"spec":{`, `"spec":{"reason":"",`, 1), false},
		"the same in another order":    {`{"spec":{"ttl":"60m"},"metadata":{"managedFields":[{"manager":"m"}],"name":"a"}}`, true},
		"a number that is spelt alike": {strings.Replace(stored, `"ttl"`, `"fencingToken":9007199254740993,"ttl"`, 1), false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := IsUnchanged([]byte(stored), []byte(test.updated))
			if err != nil || got != test.want {
				t.Errorf("got %t, %v, want %t", got, err, test.want)
			}
		})
	}
}
