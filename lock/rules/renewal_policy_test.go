package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
		"a ttl that fits":                 {limits: Limits{MaxTTL: day, MaxOperatorRenewal: 80 * time.Minute}},
		"a ttl that is too long":          {limits: Limits{MaxTTL: day, MaxOperatorRenewal: 80*time.Minute - time.Microsecond}, want: "would never renew the lock"},
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
			if isByOperator != (lock.Spec.RenewalEndTime != nil) || isByOperator && !lock.Spec.RenewalEndTime.Time.Equal(noon.Add(test.limits.MaxOperatorRenewal)) {
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
		"to the operator":         {old: byHolder, change: func(l *v1alpha1.Lock) { l.Spec.RenewalPolicy = v1alpha1.RenewalByOperator }, limits: inMonth(), end: noon.Add(30 * day)},
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
		"by a renewal of a client that does not know it": {change: func(l *v1alpha1.Lock) {
			l.Spec.RenewalPolicy, l.Spec.RenewalEndTime = "", nil
			l.Annotations = map[string]string{v1alpha1.RequestAnnotation: "renew"}
		}, limits: inMonth(), end: noon.Add(30 * day)},
		"by a hand-off to one that does not ask for it": {change: func(l *v1alpha1.Lock) {
			l.Spec.Owner = "next"
			l.Annotations = map[string]string{v1alpha1.RequestAnnotation: "hand-off"}
		}, limits: inMonth()},
		"by a hand-off to one that asks for it, counted again": {change: func(l *v1alpha1.Lock) {
			l.Spec.Owner = "next"
			l.Annotations = map[string]string{v1alpha1.RequestAnnotation: "hand-off", v1alpha1.AcquisitionAnnotation: "1b4e28ba-2fa1-11d2-883f-0016d3cca427"}
		}, limits: inMonth(), end: later.Add(30 * day)},
		"not, but to a ttl beyond its end": {old: func(l *v1alpha1.Lock) { l.Spec.RenewalEndTime = after(*l.Spec.AcquireTime, 2*time.Hour) },
			change: func(l *v1alpha1.Lock) { l.Spec.TTL.Duration = 100 * time.Minute }, want: "would never renew"},
		"to the operator, too late": {old: func(l *v1alpha1.Lock) {
			byHolder(l)
			l.Spec.AcquireTime = after(*l.Spec.AcquireTime, -30*day+time.Hour)
		}, change: func(l *v1alpha1.Lock) { l.Spec.RenewalPolicy = v1alpha1.RenewalByOperator }, limits: inMonth(), want: "would never renew"},
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
		// withdrawn is by how much less than 30 days the namespace allows now.
		withdrawn time.Duration
		want      OperatorRenewal
		wait      time.Duration
	}{
		"at a third of its ttl":           {want: Renewal, wait: 20 * time.Minute},
		"sooner each moment":              {after: 15 * time.Minute, want: Renewal, wait: 5 * time.Minute},
		"at once if it is late":           {after: 50 * time.Minute, want: Renewal},
		"not once it has expired":         {after: time.Hour, want: NoRenewal},
		"not by the holder's policy":      {change: func(l *v1alpha1.Lock) { l.Spec.RenewalPolicy = v1alpha1.RenewalByHolder }, want: NoRenewal},
		"not without a policy":            {change: func(l *v1alpha1.Lock) { l.Spec.RenewalPolicy = "" }, want: NoRenewal},
		"without a stamp of its bound":    {change: func(l *v1alpha1.Lock) { l.Spec.RenewalEndTime = nil }, want: Renewal, wait: 20 * time.Minute},
		"without a stamp and a bound":     {change: func(l *v1alpha1.Lock) { l.Spec.RenewalEndTime = nil }, withdrawn: 30 * day, want: RenewalOver, wait: 20 * time.Minute},
		"not where it is allowed no more": {withdrawn: 30 * day, want: RenewalOver, wait: 20 * time.Minute},
		"not beyond what is allowed now":  {withdrawn: 30*day - 80*time.Minute + 1, want: RenewalOver, wait: 20 * time.Minute},
		"up to what is allowed now":       {withdrawn: 30*day - 80*time.Minute, want: Renewal, wait: 20 * time.Minute},
		"not beyond it by a forged stamp": {withdrawn: 30*day - time.Hour, change: func(l *v1alpha1.Lock) { l.Spec.RenewalEndTime = after(*l.Spec.RenewTime, 9999*day) }, want: RenewalOver, wait: 20 * time.Minute},
		"until shortly before it expires": {after: time.Hour - OperatorRenewalMargin - 1, want: Renewal},
		"not just before it expires":      {after: time.Hour - OperatorRenewalMargin, want: NoRenewal},
		"not without an acquisition":      {change: func(l *v1alpha1.Lock) { l.Spec.AcquireTime = nil }, want: NoRenewal},
		"not without stamps":              {change: func(l *v1alpha1.Lock) { l.Spec.RenewTime = nil }, want: NoRenewal},
		"not while it is being deleted":   {change: func(l *v1alpha1.Lock) { l.DeletionTimestamp = &metav1.Time{Time: noon} }, want: NoRenewal},
		"not after the end of its holder": {change: func(l *v1alpha1.Lock) { l.Spec.HolderEndTime = l.Spec.RenewTime }, want: NoRenewal},
		"not beyond its bound": {change: func(l *v1alpha1.Lock) {
			l.Spec.RenewalEndTime = after(*l.Spec.RenewTime, 80*time.Minute-time.Microsecond)
		}, want: RenewalOver, wait: 20 * time.Minute},
		"up to its bound":                  {change: func(l *v1alpha1.Lock) { l.Spec.RenewalEndTime = after(*l.Spec.RenewTime, 80*time.Minute) }, want: Renewal, wait: 20 * time.Minute},
		"with a ttl of seconds, as others": {change: func(l *v1alpha1.Lock) { l.Spec.TTL.Duration = time.Second }, want: Renewal, wait: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			lock := granted(t, declared())
			if test.change != nil {
				test.change(lock)
			}
			if got, wait := NextOperatorRenewal(lock, 30*day-test.withdrawn, noon.Add(test.after)); got != test.want || wait != test.wait {
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

// After a long absence of the operator all locks are due at once.
func TestTheNextRenewalsOfLocksThatWereRenewedAtOnceAreSpread(t *testing.T) {
	lock := granted(t, declared())
	at := map[time.Duration]int{}
	for number := range 1000 {
		lock.UID = types.UID(fmt.Sprint(number))
		_, wait := NextOperatorRenewal(lock, 30*day, noon)
		if wait < 18*time.Minute || wait > 20*time.Minute {
			t.Fatalf("due after %s", wait)
		}
		at[wait.Truncate(12*time.Second)]++
	}
	if len(at) < 10 {
		t.Errorf("due at %v", at)
	}
}

func TestMaxOperatorRenewal(t *testing.T) {
	for annotation, want := range map[string]time.Duration{
		"": 0, "30 days": 0, "720": 0, "0s": 0, "-1h": 0, "1h": time.Hour, "240h": 10 * day, "241h": 10 * day, "999999999h": 0,
	} {
		if got := MaxOperatorRenewal(annotation, 10*day); got != want {
			t.Errorf("%q allows %s", annotation, got)
		}
	}
	if got := MaxOperatorRenewal("1h", 0); got != 0 {
		t.Errorf("allowed for %s where the cluster allows none", got)
	}
}

func TestTheOperatorRenewsStampsOnly(t *testing.T) {
	lock := granted(t, declared())
	lock.Spec.RenewalEndTime = nil
	renewed, err := RenewedByOperator(lock, 30*day, noon.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if got := renewed.Spec; !got.ExpireTime.Time.Equal(noon.Add(61*time.Minute)) || !got.RenewTime.Time.Equal(noon.Add(time.Minute)) ||
		!got.RenewalEndTime.Time.Equal(noon.Add(30*day)) || *got.FencingToken != 7 {
		t.Errorf("renewed to %+v", got)
	}
	lock.Spec.RenewTime, lock.Spec.ExpireTime, lock.Spec.RenewalEndTime, lock.Spec.FencingToken = renewed.Spec.RenewTime, renewed.Spec.ExpireTime, renewed.Spec.RenewalEndTime, renewed.Spec.FencingToken
	if !equality.DeepEqual(lock, renewed) {
		t.Errorf("changed more: %+v", renewed)
	}
}

// A stored ttl or namespace that would be refused now must not keep a user from ending the lock by force.
func TestAChangeOfSomethingElseDoesNotDependOnTheRenewalPolicy(t *testing.T) {
	for name, spoil := range map[string]func(*v1alpha1.LockSpec){
		"a ttl that is too short":   func(s *v1alpha1.LockSpec) { s.TTL.Duration = 30 * time.Second },
		"no bound":                  func(s *v1alpha1.LockSpec) { s.RenewalEndTime = nil },
		"a bound that is too close": func(s *v1alpha1.LockSpec) { s.RenewalEndTime = s.RenewTime },
	} {
		t.Run(name, func(t *testing.T) {
			old := granted(t, declared())
			spoil(&old.Spec)
			forced := old.DeepCopy()
			forced.Annotations = map[string]string{v1alpha1.ForceReleaseReasonAnnotation: "stuck"}
			if _, _, err := AdmitUpdate(Change{Old: old, Updated: forced, User: User{Name: "root"}}, DefaultLimits(), noon, 0); err != nil {
				t.Errorf("a reason for a forced release: %v", err)
			}
			explained := old.DeepCopy()
			explained.Spec.Reason = "other"
			if _, _, err := AdmitUpdate(Change{Old: old, Updated: explained, User: User{Name: "alice"}}, DefaultLimits(), noon, 0); err != nil {
				t.Errorf("another reason of the holder: %v", err)
			}
		})
	}
}

// The doors' renewals do not pass admission.
func TestARenewalDoesNotMakeTheTTLTooShortForTheOperator(t *testing.T) {
	lock := granted(t, declared())
	renew := func(ttl time.Duration) error {
		_, err := Renew(lock, Proof{Owner: "repository"}, ttl, noon)
		return err
	}
	if err := renew(time.Minute - 1); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "spec.ttl") {
		t.Errorf("to less than a minute: %v", err)
	}
	if err := errors.Join(renew(0), renew(time.Minute)); err != nil {
		t.Error(err)
	}
	lock.Spec.TTL.Duration = time.Second
	if err := renew(time.Second); err != nil {
		t.Errorf("as it is stored: %v", err)
	}
	lock.Spec.TTL.Duration, lock.Spec.RenewalPolicy = time.Hour, ""
	if err := renew(time.Second); err != nil {
		t.Errorf("of a lock that its holder renews: %v", err)
	}
}

// A server-side apply leaves the fields of the former holder's manifest in the object.
func TestATakeOverDoesNotInheritTheRenewalByTheOperator(t *testing.T) {
	old := granted(t, declared())
	next := old.DeepCopy()
	next.Spec.Owner, next.Spec.TTL = "b", &v1alpha1.Duration{Duration: 30 * time.Second}
	change := Change{Old: old, Updated: next, User: User{Name: "bob"}}
	lock, _, err := AdmitUpdate(change, DefaultLimits(), noon.Add(2*time.Hour), 0)
	if err != nil {
		t.Fatal(err)
	}
	if lock.Spec.RenewalPolicy != "" || lock.Spec.RenewalEndTime != nil {
		t.Errorf("the next holder's lock is renewed: %+v", lock.Spec)
	}
}
