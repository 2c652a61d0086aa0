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

var (
	podZero = v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "pod-0"}
	podOne  = v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-1", UID: "pod-1"}
	job     = v1alpha1.HolderReference{APIVersion: "batch/v1", Kind: "Job", Name: "batch", UID: "job-0"}
)

func ownerOf(ref v1alpha1.HolderReference) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}
}

func TestDropHolderOwner(t *testing.T) {
	foreign := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "settings", UID: "config-0"}
	renamed := ownerOf(podZero)
	renamed.Name = "another"
	cases := map[string]struct {
		owners []metav1.OwnerReference
		ref    *v1alpha1.HolderReference
		former *v1alpha1.HolderReference
		want   []metav1.OwnerReference
	}{
		"no holder":                    {owners: []metav1.OwnerReference{foreign}, want: []metav1.OwnerReference{foreign}},
		"a holder":                     {ref: &podZero},
		"a holder beside other owners": {owners: []metav1.OwnerReference{foreign}, ref: &podZero, want: []metav1.OwnerReference{foreign}},
		"a holder that is an owner":    {owners: []metav1.OwnerReference{ownerOf(podZero)}, ref: &podZero, want: []metav1.OwnerReference{}},
		"a holder under another name":  {owners: []metav1.OwnerReference{renamed}, ref: &podZero, want: []metav1.OwnerReference{}},
		"a Job that was made an owner": {owners: []metav1.OwnerReference{ownerOf(job)}, ref: &job, want: []metav1.OwnerReference{}},
		"another holder than before":   {owners: []metav1.OwnerReference{ownerOf(podZero)}, ref: &podOne, former: &podZero, want: []metav1.OwnerReference{}},
		"no holder any more":           {owners: []metav1.OwnerReference{ownerOf(podZero), foreign}, former: &podZero, want: []metav1.OwnerReference{foreign}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			lock := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{OwnerReferences: test.owners}, Spec: v1alpha1.LockSpec{HolderRef: test.ref}}
			dropHolderOwner(lock, test.former)
			if diff := cmp.Diff(test.want, lock.OwnerReferences); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHolderIsNoOwner is about a garbage collector that deletes by UID, which stays when a lock is
// handed off.
func TestHolderIsNoOwner(t *testing.T) {
	granted := Grant("default", Acquisition{Key: "k", Owner: "a", Holder: "alice", HolderRef: &podZero}, DefaultLimits(), noon)
	granted.ResourceVersion = "1"
	if len(granted.OwnerReferences) > 0 {
		t.Errorf("a grant has the owners %v", granted.OwnerReferences)
	}
	granted.OwnerReferences = []metav1.OwnerReference{ownerOf(podZero)} // As earlier versions did.
	renewed, err := Renew(granted, Proof{Owner: "a", Holder: "alice"}, 0, noon)
	if err != nil {
		t.Fatal(err)
	}
	if len(renewed.OwnerReferences) > 0 {
		t.Errorf("a renewed lock has the owners %v", renewed.OwnerReferences)
	}
	handedOff := HandOff(granted, Acquisition{Key: "k", Owner: "b", Holder: "alice", HolderRef: &podOne}, DefaultLimits(), noon)
	if len(handedOff.OwnerReferences) > 0 {
		t.Errorf("a lock that was handed off has the owners %v", handedOff.OwnerReferences)
	}
}

func TestHolderThatIsInvalid(t *testing.T) {
	cases := map[string]struct {
		change func(*Acquisition)
		want   string
	}{
		"without a UID":           {func(a *Acquisition) { a.HolderRef.UID = "" }, "spec.holderRef.uid"},
		"with a long name":        {func(a *Acquisition) { a.HolderRef.Name = strings.Repeat("n", 254) }, "spec.holderRef.name"},
		"with a path for a name":  {func(a *Acquisition) { a.HolderRef.Name = "a/b" }, "spec.holderRef.name"},
		"with a strange version":  {func(a *Acquisition) { a.HolderRef.APIVersion = "a/b/c" }, "spec.holderRef.apiVersion"},
		"with a group upwards":    {func(a *Acquisition) { a.HolderRef.APIVersion = "../metrics" }, "spec.holderRef.apiVersion"},
		"with a version upwards":  {func(a *Acquisition) { a.HolderRef.APIVersion = "apps/.." }, "spec.holderRef.apiVersion"},
		"with a query":            {func(a *Acquisition) { a.HolderRef.APIVersion = "v1?watch=1" }, "spec.holderRef.apiVersion"},
		"without a name":          {func(a *Acquisition) { a.HolderRef.Name = "" }, "spec.holderRef.name"},
		"with a name upwards":     {func(a *Acquisition) { a.HolderRef.Name = ".." }, "spec.holderRef.name"},
		"with an escaped name":    {func(a *Acquisition) { a.HolderRef.Name = "%2e%2e" }, "spec.holderRef.name"},
		"with a name of a MiB":    {func(a *Acquisition) { a.HolderRef.Name = strings.Repeat("n", 1<<20) }, "spec.holderRef.name"},
		"a delay without holder":  {func(a *Acquisition) { a.HolderRef, a.ReleaseDelay = nil, time.Second }, "needs a holderRef"},
		"a long delay without":    {func(a *Acquisition) { a.HolderRef, a.ReleaseDelay = nil, 25*time.Hour }, "at most 24h"},
		"a delay below zero":      {func(a *Acquisition) { a.ReleaseDelay = -time.Second }, "spec.releaseDelay"},
		"a delay of over one day": {func(a *Acquisition) { a.ReleaseDelay = 25 * time.Hour }, "spec.releaseDelay"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			ref := podZero
			request := Acquisition{Key: "k", Owner: "a", Holder: "alice", HolderRef: &ref}
			test.change(&request)
			holder, err := request.Validate(DefaultLimits())
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a refusal of %s", err, test.want)
			}
			if holder != nil {
				t.Errorf("%v counts as valid", holder)
			}
		})
	}
}

// A reference whose text could lead a request astray never becomes a ValidReference, which is what
// it takes to look for the object.
func TestOnlyValidHoldersAreLookedFor(t *testing.T) {
	astray := podOne
	astray.Name = "../worker-1"
	cases := map[string]struct {
		old, named *v1alpha1.HolderReference
		want       *v1alpha1.HolderReference
		isRefused  bool
	}{
		"none":               {},
		"a new one":          {named: &podOne, want: &podOne},
		"another one":        {old: &podZero, named: &podOne, want: &podOne},
		"the same":           {old: &podZero, named: new(podZero)},
		"none any more":      {old: &podZero},
		"one outside a path": {old: &podZero, named: &astray, isRefused: true},
	}
	check := func(t *testing.T, got *ValidReference, err error, want *v1alpha1.HolderReference, isRefused bool) {
		t.Helper()
		if errors.Is(err, ErrInvalid) != isRefused {
			t.Errorf("got %v", err)
		}
		switch {
		case (got == nil) != (want == nil):
			t.Errorf("got %v, want %v", got, want)
		case got != nil && got.HolderReference() != *want:
			t.Errorf("got %v, want %v", got.HolderReference(), *want)
		}
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			stored := referenced()
			stored.Spec.HolderRef = test.old
			next := stored.DeepCopy()
			next.Spec.HolderRef = test.named
			_, holder, err := AdmitUpdate(change(t, stored, next, "alice"), DefaultLimits(), at(10).Time, time.Second)
			check(t, holder, err, test.want, test.isRefused)

			created := manifest()
			created.Spec.HolderRef = test.named
			_, holder, err = AdmitCreate(created, User{Name: "alice"}, DefaultLimits(), noon)
			want := test.named
			if test.isRefused {
				want = nil
			}
			check(t, holder, err, want, test.isRefused)

			request := Acquisition{Key: "k", Holder: "alice", HolderRef: test.named}
			holder, err = request.Validate(DefaultLimits())
			check(t, holder, err, want, test.isRefused)
		})
	}
}

// A client that writes the whole spec keeps the holder that the next caller shares with the one
// before.
func TestHandOffWithinAPod(t *testing.T) {
	old := referenced()
	old.Annotations = map[string]string{v1alpha1.AcquisitionAnnotation: "1"}
	next := old.DeepCopy()
	next.Spec.Owner = "token-b"
	next.Annotations = map[string]string{v1alpha1.AcquisitionAnnotation: "2", v1alpha1.RequestAnnotation: v1alpha1.RequestHandOff}
	got, _, err := AdmitUpdate(change(t, old, next, "alice"), DefaultLimits(), at(10).Time, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(old.Spec.HolderRef, got.Spec.HolderRef); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(got.OwnerReferences) > 0 {
		t.Errorf("owners %v", got.OwnerReferences)
	}
}

func TestUntilHolderReleased(t *testing.T) {
	minute := &v1alpha1.Duration{Duration: time.Minute}
	cases := map[string]struct {
		delay *v1alpha1.Duration
		ended *v1alpha1.Timestamp
		want  time.Duration
	}{
		"without a delay":                    {want: 0},
		"with a delay, not yet on record":    {delay: minute, want: time.Minute},
		"with a delay that has begun":        {delay: minute, ended: at(-20), want: 40 * time.Second},
		"with a delay that is over":          {delay: minute, ended: at(-90), want: -30 * time.Second},
		"with an end by a clock that is off": {delay: minute, ended: at(3600), want: time.Minute},
		"with a delay that was given up":     {ended: at(-1), want: 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			lock := &v1alpha1.Lock{Spec: v1alpha1.LockSpec{HolderRef: &podZero, ReleaseDelay: test.delay, HolderEndTime: test.ended}}
			if got := UntilHolderReleased(lock, noon); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestHolderEndTime(t *testing.T) {
	ended, err := RecordHolderEnd(referenced(), at(5).Time)
	if err != nil {
		t.Fatal(err)
	}
	if !ended.Spec.HolderEndTime.Equal(at(5)) || ended.Spec.FencingToken == nil {
		t.Errorf("recorded %+v", ended.Spec)
	}
	stored := ended.DeepCopy()
	stored.ResourceVersion = "42"
	admit := func(t *testing.T, now float64, edit func(*v1alpha1.Lock)) (*v1alpha1.Lock, error) {
		t.Helper()
		next := stored.DeepCopy()
		edit(next)
		admitted, _, err := AdmitUpdate(change(t, stored, next, "alice"), DefaultLimits(), at(now).Time, time.Second)
		return admitted, err
	}
	got, err := admit(t, 10, func(l *v1alpha1.Lock) { l.Spec.HolderEndTime, l.Spec.Reason = nil, "other" })
	if err != nil || !got.Spec.HolderEndTime.Equal(at(5)) {
		t.Errorf("left out: %v, %v", got, err)
	}
	if _, err := admit(t, 10, func(l *v1alpha1.Lock) { l.Spec.HolderEndTime = at(9) }); !errors.Is(err, ErrInvalid) {
		t.Errorf("moved: %v", err)
	}
	got, err = admit(t, 10, func(l *v1alpha1.Lock) { l.Spec.HolderRef = &podOne })
	if err != nil || got.Spec.HolderEndTime != nil {
		t.Errorf("another holder: %v, %v", got, err)
	}
	got, err = admit(t, 40, func(l *v1alpha1.Lock) { l.Spec.TTL = &v1alpha1.Duration{Duration: time.Minute} })
	if err != nil || got.Spec.HolderEndTime != nil {
		t.Errorf("a new grant: %v, %v", got, err)
	}
}
