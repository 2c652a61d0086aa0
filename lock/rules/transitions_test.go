package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
			TTL: &metav1.Duration{Duration: 30 * time.Second}, AcquireTime: at(0), RenewTime: at(0), ExpireTime: at(30),
		},
	}
}

func byBob() Acquisition {
	return Acquisition{Key: "billing:report", Owner: "token-b", TTL: time.Minute, Holder: "bob", Reason: "monthly close"}
}

func TestGrant(t *testing.T) {
	got, err := Grant("default", byBob(), DefaultLimits(), noon)
	if err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "billing--report"},
		Spec: v1alpha1.LockSpec{
			Key: "billing:report", Scope: v1alpha1.ScopeGlobal, Owner: "token-b", Holder: "bob", Reason: "monthly close",
			TTL: &metav1.Duration{Duration: time.Minute}, AcquireTime: at(0), RenewTime: at(0), ExpireTime: at(60),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("grant (-want +got):\n%s", diff)
	}
}

func TestGrantUsesTheDefaultTTL(t *testing.T) {
	request := byBob()
	request.TTL = 0
	got, err := Grant("default", request, DefaultLimits(), noon)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Spec.ExpireTime.Equal(at(300)) {
		t.Errorf("expires at %s, want five minutes after noon", got.Spec.ExpireTime)
	}
}

func TestGrantRefuses(t *testing.T) {
	cases := map[string]struct {
		change func(*Acquisition)
		want   string
	}{
		"an empty key":                     {func(a *Acquisition) { a.Key = "" }, "spec.key"},
		"a key of 513 bytes":               {func(a *Acquisition) { a.Key = strings.Repeat("k", 513) }, "at most 512 bytes"},
		"a control character":              {func(a *Acquisition) { a.Key = "a\tb" }, "control characters"},
		"no holder":                        {func(a *Acquisition) { a.Holder = "" }, "spec.holder"},
		"a reason of 1025 characters":      {func(a *Acquisition) { a.Reason = strings.Repeat("ü", 1025) }, "spec.reason"},
		"no owner":                         {func(a *Acquisition) { a.Owner = "" }, "spec.owner"},
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
			_, err := Grant("default", request, DefaultLimits(), noon)
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
	want.Labels = nil
	want.Spec.Owner, want.Spec.Holder, want.Spec.Reason = "token-b", "bob", "monthly close"
	want.Spec.TTL = &metav1.Duration{Duration: time.Minute}
	want.Spec.AcquireTime, want.Spec.RenewTime, want.Spec.ExpireTime = at(31), at(31), at(91)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("take-over (-want +got):\n%s", diff)
	}
}

func TestTakeOverRefusesALiveLock(t *testing.T) {
	deleting := stored()
	deleting.DeletionTimestamp = &metav1.Time{Time: noon}
	cases := map[string]struct {
		current *v1alpha1.Lock
		now     float64
	}{
		"before it expires":              {stored(), 29.999999},
		"within the clock skew":          {stored(), 30.999999},
		"while it is deleted, finalised": {deleting, 1000},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := TakeOver(test.current, byBob(), DefaultLimits(), at(test.now).Time, time.Second)
			want := &HeldError{Key: "lock:billing:report", Holder: "alice", ExpireTime: at(30).Time}
			var got *HeldError
			if !errors.As(err, &got) || !errors.Is(err, ErrHeld) {
				t.Fatalf("got %v, want a HeldError", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
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
			if err := Release(test.current, test.owner, at(test.now).Time); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestForceRelease(t *testing.T) {
	cases := map[string]struct {
		current *v1alpha1.Lock
		now     float64
		want    error
	}{
		"a live lock":    {stored(), 1, nil},
		"nothing":        {nil, 1, ErrNotHeld},
		"an expired one": {stored(), 30, ErrNotHeld},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if err := ForceRelease(test.current, at(test.now).Time); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// TestTakeOverKeepsTheSpelling shows that the immutable fields stay as they are where
// another request spells the same full key in other parts.
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
