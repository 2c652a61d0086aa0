package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// at returns the time some seconds after noon.
func at(seconds float64) *v1alpha1.Timestamp {
	timestamp := v1alpha1.NewTimestamp(noon.Add(time.Duration(seconds * float64(time.Second))))
	return &timestamp
}

// stored is a lock that alice acquired at noon for thirty seconds.
func stored() *v1alpha1.Lock {
	return &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "billing--report", UID: "uid-1", ResourceVersion: "41", Labels: map[string]string{"team": "billing"}},
		Spec: v1alpha1.LockSpec{
			Key: "billing:report", Scope: v1alpha1.ScopeGlobal, Owner: "token-a", Holder: "alice",
			TTL: &v1alpha1.Duration{Duration: 30 * time.Second}, AcquireTime: at(0), RenewTime: at(0), ExpireTime: at(30),
		},
	}
}

func byBob() Acquisition {
	return Acquisition{Key: "billing:report", Owner: "token-b", TTL: time.Minute, Holder: "bob", Reason: "monthly close"}
}

func TestGrant(t *testing.T) {
	got := Grant("default", byBob(), DefaultLimits(), noon)
	want := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "billing--report"},
		Spec: v1alpha1.LockSpec{
			Key: "billing:report", Scope: v1alpha1.ScopeGlobal, Owner: "token-b", Holder: "bob", Reason: "monthly close",
			TTL: &v1alpha1.Duration{Duration: time.Minute}, AcquireTime: at(0), RenewTime: at(0), ExpireTime: at(60),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("grant (-want +got):\n%s", diff)
	}
}

func TestALockRecordsTheConnectionThatHasTakenItUp(t *testing.T) {
	connected := byBob()
	connected.ID, connected.Connection = "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "first"
	held := Grant("default", connected, DefaultLimits(), noon)
	held.ResourceVersion = "41"
	want := map[string]string{v1alpha1.AcquisitionAnnotation: connected.ID, v1alpha1.ConnectionAnnotation: "first"}
	if diff := cmp.Diff(want, held.Annotations); diff != "" {
		t.Errorf("grant (-want +got):\n%s", diff)
	}
	proof := Proof{Owner: connected.Owner, Connection: "first"}
	renewed, err := Renew(held, proof, 0, noon)
	if err != nil || ConnectionOf(renewed) != "first" {
		t.Errorf("a renewal records the connection %q, %v", ConnectionOf(renewed), err)
	}
	taken, err := Renew(held, Proof{Owner: connected.Owner, NextConnection: "second"}, 0, noon)
	if err != nil || ConnectionOf(taken) != "second" {
		t.Fatalf("the lock records the connection %q, %v", ConnectionOf(taken), err)
	}
	for what, err := range map[string]error{"renews": second(Renew(taken, proof, 0, noon)), "releases": Release(taken, proof, noon)} {
		if !errors.Is(err, ErrNotHeld) {
			t.Errorf("the former connection %s the lock: %v", what, err)
		}
	}
	if err := Release(taken, Proof{Owner: connected.Owner}, noon); err != nil {
		t.Errorf("its owner does not release the lock: %v", err)
	}
	if next := HandOff(held, byBob(), DefaultLimits(), noon); next.Annotations != nil {
		t.Errorf("the next holder has %v", next.Annotations)
	}
	next := held.DeepCopy()
	next.Spec.Owner = "token-c"
	if dropFormerHolder(next, held); ConnectionOf(next) != "" {
		t.Errorf("a manifest that takes the lock over has %v", next.Annotations)
	}
}

func second[T any](_ T, err error) error { return err }

func TestGrantUsesTheDefaultTTL(t *testing.T) {
	request := byBob()
	request.TTL = 0
	got := Grant("default", request, DefaultLimits(), noon)
	if !got.Spec.ExpireTime.Equal(at(300)) {
		t.Errorf("expires at %s, want five minutes after noon", got.Spec.ExpireTime)
	}
}

func TestAcquisitionValidate(t *testing.T) {
	cases := map[string]struct {
		change func(*Acquisition)
		want   string
	}{
		"an empty key":           {func(a *Acquisition) { a.Key = "" }, "spec.key"},
		"a key of 513 bytes":     {func(a *Acquisition) { a.Key = strings.Repeat("k", 513) }, "at most 512 bytes"},
		"a control character":    {func(a *Acquisition) { a.Key = "a\tb" }, "control characters"},
		"white space at the end": {func(a *Acquisition) { a.Key = "a " }, "character 2 is U+0020"},
		"an invisible character": {func(a *Acquisition) { a.Scope, a.Function = v1alpha1.ScopeFunction, "\ufefff" },
			"character 1 is U+FEFF"},
		"no holder":                        {func(a *Acquisition) { a.Holder = "" }, "spec.holder"},
		"a reason of 1025 characters":      {func(a *Acquisition) { a.Reason = strings.Repeat("ü", 1025) }, "spec.reason"},
		"no owner, which acquiring makes":  {func(a *Acquisition) { a.Owner = "" }, ""},
		"an owner of 513 bytes":            {func(a *Acquisition) { a.Owner = strings.Repeat("o", 513) }, "spec.owner"},
		"a negative ttl":                   {func(a *Acquisition) { a.TTL = -1 }, "at least 1ms and at most 24h"},
		"a ttl over the maximum":           {func(a *Acquisition) { a.TTL = 24*time.Hour + 1 }, "at least 1ms and at most 24h"},
		"a function for scope Global":      {func(a *Acquisition) { a.Function = "f" }, "spec.function"},
		"no function for scope Function":   {func(a *Acquisition) { a.Scope = v1alpha1.ScopeFunction }, "spec.function"},
		"a scope that does not exist":      {func(a *Acquisition) { a.Scope = "Galaxy" }, "spec.scope"},
		"a ttl of exactly the maximum not": {func(a *Acquisition) { a.TTL = 24 * time.Hour }, ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			request := byBob()
			test.change(&request)
			_, err := request.Validate(DefaultLimits())
			if test.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want ErrInvalid with %q", err, test.want)
			}
		})
	}
}

func TestTakeOver(t *testing.T) {
	current := stored()
	token := int64(40)
	current.Spec.FencingToken = &token
	current.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "pod-1"}}
	got, err := TakeOver(current, byBob(), DefaultLimits(), noon.Add(31*time.Second), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	want := stored()
	want.Labels, want.ManagedFields = nil, reset()
	want.Spec.Owner, want.Spec.Holder, want.Spec.Reason = "token-b", "bob", "monthly close"
	want.Spec.TTL = &v1alpha1.Duration{Duration: time.Minute}
	want.Spec.AcquireTime, want.Spec.RenewTime, want.Spec.ExpireTime = at(31), at(31), at(91)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("take-over (-want +got):\n%s", diff)
	}
}

func TestTakeOverRefusesALiveLock(t *testing.T) {
	deleting := stored()
	deleting.DeletionTimestamp = &metav1.Time{Time: noon}
	byAlice := &HeldError{Key: "lock:billing:report", Holder: "alice", AcquireTime: at(0).Time, ExpireTime: at(30).Time}
	cases := map[string]struct {
		current *v1alpha1.Lock
		now     float64
		want    *HeldError
	}{
		"before it expires":              {stored(), 29.999999, byAlice},
		"within the clock skew":          {stored(), 30.999999, &HeldError{Key: "lock:billing:report", IsExpired: true}},
		"while it is deleted, finalised": {deleting, 1000, byAlice},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := TakeOver(test.current, byBob(), DefaultLimits(), at(test.now).Time, time.Second)
			var got *HeldError
			if !errors.As(err, &got) || !errors.Is(err, ErrHeld) {
				t.Fatalf("got %v, want a HeldError", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "token-a") {
				t.Errorf("the error shows the owner token: %v", err)
			}
		})
	}
}

func TestTakeOverDistinguishesGrantsOfOneMoment(t *testing.T) {
	current := stored()
	current.Spec.AcquireTime = at(31)
	got, err := TakeOver(current, byBob(), DefaultLimits(), noon.Add(31*time.Second), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.AcquireTime.Equal(current.Spec.AcquireTime) {
		t.Error("two grants have the same acquireTime")
	}
}

func TestHandOff(t *testing.T) {
	current := stored()
	current.Annotations = map[string]string{"team": "billing"}
	current.Finalizers = []string{"example.com/audit"}
	current.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "pod-1"}}
	current.Spec.FencingToken = new(int64(40))
	before := current.DeepCopy()
	got := HandOff(current, byBob(), DefaultLimits(), noon.Add(10*time.Second))
	want := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "billing--report", UID: "uid-1", ResourceVersion: "41", ManagedFields: reset()},
		Spec: v1alpha1.LockSpec{
			Key: "billing:report", Scope: v1alpha1.ScopeGlobal, Owner: "token-b", Holder: "bob", Reason: "monthly close",
			TTL: &v1alpha1.Duration{Duration: time.Minute}, AcquireTime: at(10), RenewTime: at(10), ExpireTime: at(70),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hand-off (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, current); diff != "" {
		t.Errorf("the lock of the former owner was changed (-want +got):\n%s", diff)
	}
}

// TestHandOffIsANewGrant hands the lock off in the very moment of its acquisition,
// to a caller who uses the same owner token.
func TestHandOffIsANewGrant(t *testing.T) {
	request := byBob()
	request.Owner = stored().Spec.Owner
	got := HandOff(stored(), request, DefaultLimits(), noon)
	if !got.Spec.AcquireTime.After(noon) || !got.Spec.RenewTime.Equal(got.Spec.AcquireTime) {
		t.Errorf("acquired at %s and renewed at %s, want a moment after noon", got.Spec.AcquireTime, got.Spec.RenewTime)
	}
	if lives := got.Spec.ExpireTime.Sub(got.Spec.RenewTime.Time); lives != request.TTL {
		t.Errorf("lives for %s, want the whole ttl", lives)
	}
}

func TestHandOffKeepsTheSpelling(t *testing.T) {
	current := stored()
	current.Spec.Key, current.Spec.Scope, current.Spec.Function = "report", v1alpha1.ScopeFunction, "billing"
	got := HandOff(current, byBob(), DefaultLimits(), noon.Add(time.Second))
	if got.Spec.Key != "report" || got.Spec.Scope != v1alpha1.ScopeFunction || got.Spec.Function != "billing" {
		t.Errorf("key, scope and function became %q, %q and %q", got.Spec.Key, got.Spec.Scope, got.Spec.Function)
	}
}

func TestRenew(t *testing.T) {
	cases := map[string]struct {
		ttl        time.Duration
		now        float64
		wantTTL    time.Duration
		wantExpire float64
	}{
		"by the ttl it has":                          {0, 10, 30 * time.Second, 40},
		"in the moment of its grant, adding nothing": {0, 0, 30 * time.Second, 30},
		"in its last microsecond":                    {0, 29.999999, 30 * time.Second, 59.999999},
		"by a longer ttl":                            {time.Hour, 10, time.Hour, 3610},
		"by a shorter ttl than what remains":         {time.Second, 10, time.Second, 11},
		"by the shortest ttl":                        {time.Millisecond, 10, time.Millisecond, 10.001},
		"by the longest ttl":                         {24 * time.Hour, 10, 24 * time.Hour, 10 + 24*3600},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			current := stored()
			got, err := Renew(current, Proof{Owner: "token-a"}, test.ttl, at(test.now).Time)
			if err != nil {
				t.Fatal(err)
			}
			want := stored()
			want.Spec.TTL = &v1alpha1.Duration{Duration: test.wantTTL}
			want.Spec.RenewTime, want.Spec.ExpireTime = at(test.now), at(test.wantExpire)
			want.Spec.FencingToken = new(int64(41))
			want.ManagedFields = reset()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("renewal (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(stored(), current); diff != "" {
				t.Errorf("the lock that was renewed was changed in place (-want +got):\n%s", diff)
			}
		})
	}
}

// reset is what makes the API server drop the record of who sets which field.
func reset() []metav1.ManagedFieldsEntry { return []metav1.ManagedFieldsEntry{{}} }

func TestRenewKeepsTheFieldManagersOfAManifest(t *testing.T) {
	entry := func(operation metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: "m", Operation: operation}
	}
	updated, applied := entry(metav1.ManagedFieldsOperationUpdate), entry(metav1.ManagedFieldsOperationApply)
	cases := map[string]struct {
		annotation string
		before     []metav1.ManagedFieldsEntry
		want       []metav1.ManagedFieldsEntry
	}{
		"none":                              {want: reset()},
		"of updates":                        {before: []metav1.ManagedFieldsEntry{updated}, want: reset()},
		"of a manifest applied by a server": {before: []metav1.ManagedFieldsEntry{updated, applied}, want: []metav1.ManagedFieldsEntry{updated, applied}},
		"of a manifest applied by a client": {
			annotation: "{}", before: []metav1.ManagedFieldsEntry{updated}, want: []metav1.ManagedFieldsEntry{updated},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			current := stored()
			current.ManagedFields = test.before
			if test.annotation != "" {
				current = annotated(current, corev1.LastAppliedConfigAnnotation, test.annotation)
			}
			got, err := Renew(current, Proof{Owner: "token-a"}, 0, noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.ManagedFields); diff != "" {
				t.Errorf("managed fields (-want +got):\n%s", diff)
			}
			if isManifest := len(test.want) > 0 && test.want[0] != reset()[0]; IsStripped(Stripped(current)) != isManifest {
				t.Error("a cache must mark a manifest, whose renewal needs the managed fields, and nothing else")
			}
		})
	}
}

func TestRenewKeepsTheToken(t *testing.T) {
	current := stored()
	current.Spec.FencingToken = new(int64(17))
	got, err := Renew(current, Proof{Owner: "token-a"}, 0, noon)
	if err != nil {
		t.Fatal(err)
	}
	if token, err := got.FencingToken(); err != nil || token != 17 {
		t.Errorf("token %d, error %v; want the token of the grant, 17", token, err)
	}
}

func TestRenewKeepsTheSpellingOfItsTTL(t *testing.T) {
	spelled, err := v1alpha1.ParseDuration("60m")
	if err != nil {
		t.Fatal(err)
	}
	current := stored()
	current.Spec.TTL, current.Spec.ExpireTime = &spelled, at(3600)
	for ttl, want := range map[time.Duration]string{0: "60m", time.Hour: "60m", 2 * time.Hour: "2h0m0s"} {
		renewed, err := Renew(current, Proof{Owner: current.Spec.Owner}, ttl, at(10).Time)
		if err != nil || renewed.Spec.TTL.String() != want {
			t.Errorf("renewed for %s, its ttl is spelled %s, %v, want %s", ttl, renewed.Spec.TTL, err, want)
		}
	}
	if got := current.Spec.TTL.String(); got != "60m" {
		t.Errorf("the lock itself has become one with a ttl of %s", got)
	}
}

func TestRenewRefuses(t *testing.T) {
	absolute := func() *v1alpha1.Lock {
		current := stored()
		current.Spec.TTL = nil
		return current
	}
	unnumbered := stored()
	unnumbered.ResourceVersion = ""
	cases := map[string]struct {
		current  *v1alpha1.Lock
		owner    string
		ttl      time.Duration
		now      float64
		want     error
		wantText string
	}{
		"nothing":                              {nil, "token-a", 0, 1, ErrNotHeld, ""},
		"the lock of another owner":            {stored(), "token-b", 0, 1, ErrOwnerMismatch, ""},
		"the expired lock of another owner":    {stored(), "token-b", 0, 30, ErrNotHeld, ""},
		"an expired lock, at its expiry":       {stored(), "token-a", 0, 30, ErrExpired, ""},
		"an expired lock before a bad ttl":     {stored(), "token-a", -1, 30, ErrExpired, ""},
		"an absolute end without a ttl":        {absolute(), "token-a", 0, 1, ErrInvalid, "absolute expireTime"},
		"an empty owner token":                 {stored(), "", 0, 1, ErrOwnerMismatch, ""},
		"a lock that was not read from etcd":   {unnumbered, "token-a", 0, 1, nil, "no fencing token"},
		"an absolute end not, with a ttl":      {absolute(), "token-a", time.Minute, 1, nil, ""},
		"a bad ttl for the lock of another":    {stored(), "token-b", -1, 1, ErrOwnerMismatch, ""},
		"a lock that was never stamped at all": {&v1alpha1.Lock{Spec: v1alpha1.LockSpec{Owner: "token-a"}}, "token-a", 0, 1, ErrExpired, ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Renew(test.current, Proof{Owner: test.owner}, test.ttl, at(test.now).Time)
			switch {
			case test.want == nil && test.wantText == "":
				if err != nil || !got.Spec.ExpireTime.Equal(at(test.now+test.ttl.Seconds())) {
					t.Errorf("got %v, %v; want a renewal", got, err)
				}
			case test.want != nil && !errors.Is(err, test.want), err == nil || !strings.Contains(err.Error(), test.wantText):
				t.Errorf("got %v, want %v with %q", err, test.want, test.wantText)
			}
		})
	}
}

func TestValidateTTL(t *testing.T) {
	for ttl, want := range map[time.Duration]string{
		0:                    "",
		time.Millisecond:     "",
		24 * time.Hour:       "",
		-time.Second:         "spec.ttl",
		time.Millisecond - 1: "at least 1ms",
		24*time.Hour + 1:     "at most 24h",
	} {
		err := DefaultLimits().ValidateTTL(ttl)
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", ttl, err, want)
		}
	}
}

func TestRelease(t *testing.T) {
	cases := map[string]struct {
		current *v1alpha1.Lock
		owner   string
		now     float64
		want    error
	}{
		"by the owner":                      {stored(), "token-a", 29.999999, nil},
		"by another owner":                  {stored(), "token-b", 1, ErrOwnerMismatch},
		"of nothing":                        {nil, "token-a", 1, ErrNotHeld},
		"by the owner, at the expiry":       {stored(), "token-a", 30, ErrExpired},
		"by another owner, at the expiry":   {stored(), "token-b", 30, ErrNotHeld},
		"with a token that is a prefix":     {stored(), "token-", 1, ErrOwnerMismatch},
		"with a token in another case":      {stored(), "Token-A", 1, ErrOwnerMismatch},
		"with an empty token, live":         {stored(), "", 1, ErrOwnerMismatch},
		"an expired one counts as not held": {stored(), "token-a", 31, ErrNotHeld},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if err := Release(test.current, Proof{Owner: test.owner}, at(test.now).Time); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestForceRelease(t *testing.T) {
	recorded, ending := stored(), stored()
	recorded.Spec.FencingToken, ending.DeletionTimestamp = new(int64(7)), &metav1.Time{Time: noon}
	cases := map[string]struct {
		current *v1alpha1.Lock
		token   int64
		now     float64
		want    error
	}{
		"a live lock":              {stored(), 0, 1, nil},
		"nothing":                  {nil, 0, 1, ErrNotHeld},
		"an expired one":           {stored(), 0, 30, ErrNotHeld},
		"the grant":                {recorded, 7, 1, nil},
		"another grant":            {recorded, 6, 1, ErrOtherGrant},
		"the grant, expired":       {recorded, 7, 30, ErrNotHeld},
		"another grant, expired":   {recorded, 6, 30, ErrNotHeld},
		"a grant of a lost number": {ending, 7, 1, ErrOtherGrant},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			err := ForceRelease(test.current, Precondition{FencingToken: test.token}, at(test.now).Time)
			if !errors.Is(err, test.want) || errors.Is(err, ErrOtherGrant) != errors.Is(test.want, ErrOtherGrant) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// The immutable fields stay unchanged if another request spells the same full key in other parts.
func TestTakeOverKeepsTheSpelling(t *testing.T) {
	current := stored()
	request := byBob()
	request.Scope, request.Function, request.Key = v1alpha1.ScopeFunction, "billing", "report"
	got, err := TakeOver(current, request, DefaultLimits(), noon.Add(time.Minute), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.Key != "billing:report" || got.Spec.Scope != v1alpha1.ScopeGlobal || got.Spec.Function != "" {
		t.Errorf("key, scope and function became %q, %q and %q", got.Spec.Key, got.Spec.Scope, got.Spec.Function)
	}
}

// TestReclaimOfALockThatIsBeingDeleted is about a delete in the foreground that does not end.
func TestReclaimOfALockThatIsBeingDeleted(t *testing.T) {
	current := stored()
	current.DeletionTimestamp = &metav1.Time{Time: noon}
	if err := Reclaim(current, at(30.999999).Time, time.Second); !errors.Is(err, ErrHeld) {
		t.Errorf("got %v for a held lock, want ErrHeld", err)
	}
	if err := Reclaim(current, at(31).Time, time.Second); err != nil {
		t.Errorf("got %v for an expired lock, want none", err)
	}
	claim := current.DeepCopy()
	claim.Spec.Owner = "token-b"
	if _, _, err := AdmitUpdate(change(t, current, claim, "bob"), DefaultLimits(), at(31).Time, time.Second); !errors.Is(err, ErrHeld) {
		t.Errorf("got %v for a claim that would end with the object, want ErrHeld", err)
	}
}
