package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// inMonth are the limits of a namespace in which the operator renews locks for 30 days.
func inMonth() Limits {
	limits := DefaultLimits()
	limits.MaxOperatorRenewal = 30 * day
	return limits
}

// declared is a manifest of a lock that the operator is to renew.
func declared() *v1alpha1.Lock {
	return &v1alpha1.Lock{Spec: v1alpha1.LockSpec{
		Key: "declared", Scope: v1alpha1.ScopeGlobal, Owner: "repository", TTL: &v1alpha1.Duration{Duration: time.Hour}, RenewalPolicy: v1alpha1.RenewalByOperator,
	}}
}

// granted is the lock of a manifest after its admission at noon.
func granted(t *testing.T, manifest *v1alpha1.Lock) *v1alpha1.Lock {
	t.Helper()
	lock, _, err := AdmitCreate(manifest, User{Name: "alice"}, inMonth(), noon)
	if err != nil {
		t.Fatal(err)
	}
	lock.ResourceVersion = "7"
	return lock
}

func TestTheOperatorRenewsOnlyWhereTheNamespaceAllowsItAndTheTTLIsLongEnough(t *testing.T) {
	atTime := v1alpha1.NewTimestamp(noon.Add(time.Hour))
	for name, test := range map[string]struct {
		change func(*v1alpha1.LockSpec)
		limits Limits
		want   string
	}{
		"allowed":                         {limits: inMonth()},
		"by the default ttl":              {limits: inMonth(), change: func(s *v1alpha1.LockSpec) { s.TTL = nil }},
		"not allowed":                     {limits: DefaultLimits(), want: "spec.renewalPolicy: Forbidden: Operator is not allowed in this namespace"},
		"by the holder, not allowed":      {limits: DefaultLimits(), change: func(s *v1alpha1.LockSpec) { s.RenewalPolicy = v1alpha1.RenewalByHolder }},
		"a ttl that is too short":         {limits: inMonth(), change: func(s *v1alpha1.LockSpec) { s.TTL.Duration = time.Minute - 1 }, want: "spec.ttl: Invalid"},
		"an absolute end":                 {limits: inMonth(), change: func(s *v1alpha1.LockSpec) { s.TTL, s.ExpireTime = nil, &atTime }, want: "Operator needs a ttl"},
		"a policy that there is not":      {limits: inMonth(), change: func(s *v1alpha1.LockSpec) { s.RenewalPolicy = "Always" }, want: "spec.renewalPolicy: Unsupported value"},
		"an end of renewals of their own": {limits: inMonth(), change: func(s *v1alpha1.LockSpec) { s.RenewalEndTime = &atTime }, want: "spec.renewalEndTime: Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := declared()
			if test.change != nil {
				test.change(&manifest.Spec)
			}
			lock, _, err := AdmitCreate(manifest, User{Name: "alice"}, test.limits, noon)
			switch {
			case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Fatalf("got %v, want %q", err, test.want)
			case err != nil:
				return
			}
			isByOperator := manifest.Spec.RenewalPolicy == v1alpha1.RenewalByOperator
			if isByOperator != (lock.Spec.RenewalEndTime != nil) || isByOperator && !lock.Spec.RenewalEndTime.Time.Equal(noon.Add(30*day)) {
				t.Errorf("the renewals end at %v", lock.Spec.RenewalEndTime)
			}
		})
	}
}

func TestAHolderChangesWhoRenewsItsLock(t *testing.T) {
	byHolder := func(lock *v1alpha1.Lock) { lock.Spec.RenewalPolicy, lock.Spec.RenewalEndTime = "", nil }
	later := noon.Add(10 * time.Minute)
	for name, test := range map[string]struct {
		old    func(*v1alpha1.Lock)
		change func(*v1alpha1.Lock)
		limits Limits
		user   string
		want   string
		end    time.Time
	}{
		"to the operator":         {old: byHolder, change: func(l *v1alpha1.Lock) { l.Spec.RenewalPolicy = v1alpha1.RenewalByOperator }, limits: inMonth(), end: later.Add(30 * day)},
		"where it is not allowed": {old: byHolder, change: func(l *v1alpha1.Lock) { l.Spec.RenewalPolicy = v1alpha1.RenewalByOperator }, limits: DefaultLimits(), want: "not allowed"},
		"to itself":               {change: func(l *v1alpha1.Lock) { l.Spec.RenewalPolicy = "" }, limits: DefaultLimits()},
		"not, but its reason":     {change: func(l *v1alpha1.Lock) { l.Spec.Reason, l.Spec.RenewalEndTime = "close", nil }, limits: DefaultLimits(), end: noon.Add(30 * day)},
		"not, but to a short ttl": {change: func(l *v1alpha1.Lock) { l.Spec.TTL.Duration = time.Second }, limits: inMonth(), want: "spec.ttl"},
		"not, but to a later end": {change: func(l *v1alpha1.Lock) { l.Spec.RenewalEndTime = after(*l.Spec.RenewalEndTime, day) }, limits: inMonth(), want: "spec.renewalEndTime"},
		"of another holder":       {old: byHolder, change: func(l *v1alpha1.Lock) { l.Spec.RenewalPolicy = v1alpha1.RenewalByOperator }, limits: inMonth(), user: "bob", want: "is held by"},
		"by a renewal, too short": {change: func(l *v1alpha1.Lock) {
			l.Spec.TTL.Duration = time.Second
			l.Annotations = map[string]string{v1alpha1.RequestAnnotation: "renew"}
		}, limits: inMonth(), want: "spec.ttl"},
		"by a hand-off, counted again": {change: func(l *v1alpha1.Lock) {
			l.Spec.Owner = "next"
			l.Annotations = map[string]string{v1alpha1.RequestAnnotation: "hand-off"}
		}, limits: inMonth(), end: later.Add(30 * day)},
	} {
		t.Run(name, func(t *testing.T) {
			old := granted(t, declared())
			if test.old != nil {
				test.old(old)
			}
			next := old.DeepCopy()
			test.change(next)
			user := User{Name: "alice"}
			if test.user != "" {
				user.Name = test.user
			}
			lock, _, err := AdmitUpdate(Change{Old: old, Updated: next, User: user}, test.limits, later, 0)
			switch {
			case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Fatalf("got %v, want %q", err, test.want)
			case err != nil:
				return
			}
			if (lock.Spec.RenewalEndTime == nil) != test.end.IsZero() || lock.Spec.RenewalEndTime != nil && !lock.Spec.RenewalEndTime.Time.Equal(test.end) {
				t.Errorf("the renewals end at %v, want %v", lock.Spec.RenewalEndTime, test.end)
			}
		})
	}
}

// An expired lock is not resurrected: what is declared is acquired again, as a new grant, and the time for which it is
// renewed counts from then.
func TestAnExpiredLockOfAManifestIsANewGrant(t *testing.T) {
	old := granted(t, declared())
	later := noon.Add(2 * time.Hour)
	if _, err := Renew(old, Proof{Owner: "repository"}, 0, later); !errors.Is(err, ErrExpired) {
		t.Errorf("a renewal after the expiry: %v", err)
	}
	next := old.DeepCopy()
	if !AsksForOperatorRenewal(next, old, later) {
		t.Error("the bound of the namespace would not be read")
	}
	if _, _, err := AdmitUpdate(Change{Old: old, Updated: next, User: User{Name: "alice"}, IsUnchanged: true}, DefaultLimits(), later, 0); err == nil {
		t.Error("it is acquired again where the namespace does not allow it any more")
	}
	lock, _, err := AdmitUpdate(Change{Old: old, Updated: next, User: User{Name: "alice"}, IsUnchanged: true}, inMonth(), later, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !lock.Spec.AcquireTime.Time.Equal(later) || lock.Spec.FencingToken != nil || !lock.Spec.RenewalEndTime.Time.Equal(later.Add(30*day)) {
		t.Errorf("it is no new grant: %+v", lock.Spec)
	}
}

func TestNextOperatorRenewal(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.Lock)
		after  time.Duration
		want   OperatorRenewal
		wait   time.Duration
	}{
		"at a third of its ttl":           {want: Renewal, wait: 20 * time.Minute},
		"sooner each moment":              {after: 15 * time.Minute, want: Renewal, wait: 5 * time.Minute},
		"at once if it is late":           {after: 50 * time.Minute, want: Renewal},
		"not once it has expired":         {after: time.Hour, want: NoRenewal},
		"not by the holder's policy":      {change: func(l *v1alpha1.Lock) { l.Spec.RenewalPolicy = v1alpha1.RenewalByHolder }, want: NoRenewal},
		"not without a policy":            {change: func(l *v1alpha1.Lock) { l.Spec.RenewalPolicy = "" }, want: NoRenewal},
		"not without a bound":             {change: func(l *v1alpha1.Lock) { l.Spec.RenewalEndTime = nil }, want: NoRenewal},
		"not without stamps":              {change: func(l *v1alpha1.Lock) { l.Spec.RenewTime = nil }, want: NoRenewal},
		"not while it is being deleted":   {change: func(l *v1alpha1.Lock) { l.DeletionTimestamp = &metav1.Time{Time: noon} }, want: NoRenewal},
		"not after the end of its holder": {change: func(l *v1alpha1.Lock) { l.Spec.HolderEndTime = l.Spec.RenewTime }, want: NoRenewal},
		"not beyond its bound": {change: func(l *v1alpha1.Lock) {
			l.Spec.RenewalEndTime = after(*l.Spec.RenewTime, 80*time.Minute-time.Microsecond)
		}, want: RenewalOver},
		"up to its bound":                  {change: func(l *v1alpha1.Lock) { l.Spec.RenewalEndTime = after(*l.Spec.RenewTime, 80*time.Minute) }, want: Renewal, wait: 20 * time.Minute},
		"with a ttl of seconds, as others": {change: func(l *v1alpha1.Lock) { l.Spec.TTL.Duration = time.Second }, want: Renewal, wait: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			lock := granted(t, declared())
			if test.change != nil {
				test.change(lock)
			}
			if got, wait := NextOperatorRenewal(lock, noon.Add(test.after)); got != test.want || wait != test.wait {
				t.Errorf("got %v after %v, want %v after %v", got, wait, test.want, test.wait)
			}
		})
	}
}

// What is written in another holder's name must not be what its predecessor asked for.
func TestAHandOffByTheServiceEndsTheRenewalByTheOperator(t *testing.T) {
	next := HandOff(granted(t, declared()), Acquisition{Key: "declared", Owner: "b", Holder: "bob"}, DefaultLimits(), noon)
	if next.Spec.RenewalPolicy != "" || next.Spec.RenewalEndTime != nil {
		t.Errorf("the next holder's lock is renewed: %+v", next.Spec)
	}
}
