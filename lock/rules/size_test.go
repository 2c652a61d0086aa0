package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestValidateSize(t *testing.T) {
	old := live(t)
	cases := map[string]struct {
		user          string
		after         time.Duration
		before, bytes int
		want          bool
	}{
		"a stranger up to the bound":           {"bob", 0, 1000, maxForeignBytes, true},
		"a stranger over the bound":            {"bob", 0, 1000, maxForeignBytes + 1, false},
		"a stranger who makes it smaller":      {"bob", 0, MaxBytes + 1, MaxBytes, true},
		"a stranger who leaves it large":       {"bob", 0, MaxBytes, MaxBytes, true},
		"a stranger who takes it over":         {"bob", time.Hour, 1000, MaxBytes, true},
		"the holder up to the bound":           {"alice", 0, 1000, MaxBytes, true},
		"the holder over the bound":            {"alice", 0, 1000, MaxBytes + 1, false},
		"the holder of a lock over the bound":  {"alice", 0, MaxBytes + 1, MaxBytes + 1, true},
		"the garbage collector, which tidies":  {"system:kube-controller-manager", 0, MaxBytes, MaxBytes + 100, true},
		"a stranger who takes over, too large": {"bob", time.Hour, 1000, MaxBytes + 1, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			err := Change{Old: old, Updated: old, User: User{Name: test.user}}.ValidateSize(test.before, test.bytes, noon.Add(test.after))
			if (err == nil) != test.want || err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v, want allowed: %t", err, test.want)
			}
		})
	}
	if err := ValidateSize(MaxBytes); err != nil {
		t.Error(err)
	}
	if err := ValidateSize(MaxBytes + 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("a new lock over the bound: %v", err)
	}
}

// enlarged returns the lock with so many bytes more of a user's annotations.
func enlarged(lock *v1alpha1.Lock, bytes int) *v1alpha1.Lock {
	lock = lock.DeepCopy()
	metav1.SetMetaDataAnnotation(&lock.ObjectMeta, "example.com/note", strings.Repeat("x", bytes))
	return lock
}

// managed returns the lock with another entry of managed fields, as each manager leaves one.
func managed(lock *v1alpha1.Lock, bytes int) *v1alpha1.Lock {
	lock = lock.DeepCopy()
	lock.ManagedFields = append(lock.ManagedFields, metav1.ManagedFieldsEntry{Manager: strings.Repeat("m", bytes)})
	return lock
}

func annotated(lock *v1alpha1.Lock, name, value string) *v1alpha1.Lock {
	lock = lock.DeepCopy()
	metav1.SetMetaDataAnnotation(&lock.ObjectMeta, name, value)
	return lock
}

func TestNoLockIsTooLargeToBeEnded(t *testing.T) {
	small, full, former := live(t), enlarged(live(t), 15<<10), enlarged(live(t), 100<<10)
	reason := func(lock *v1alpha1.Lock) *v1alpha1.Lock {
		return managed(annotated(lock, v1alpha1.ForceReleaseReasonAnnotation, strings.Repeat("r", MaxReasonLength)), 300)
	}
	nearBound, older := enlarged(live(t), formerMaxBytes-1500), enlarged(live(t), 200<<10)
	finalized := func(lock *v1alpha1.Lock, names ...string) *v1alpha1.Lock {
		lock = lock.DeepCopy()
		lock.Finalizers = names
		return lock
	}
	renewal := func(lock *v1alpha1.Lock) *v1alpha1.Lock {
		return managed(annotated(lock, v1alpha1.RequestAnnotation, v1alpha1.RequestRenewal), 300)
	}
	cases := map[string]struct {
		old, updated *v1alpha1.Lock
		user         string
		want         bool
	}{
		"the reason for a forced release of a full lock":          {full, reason(full), "bob", true},
		"that reason and more":                                    {full, enlarged(reason(full), 15<<10+1), "bob", false},
		"that reason again, and more":                             {reason(full), enlarged(reason(full), 15<<10+1), "bob", false},
		"the reason for a lock of an earlier version":             {former, reason(former), "bob", true},
		"the renewal of a lock of an earlier version":             {former, renewal(former), "alice", true},
		"the renewal of a full lock":                              {managed(full, 1<<10), renewal(managed(full, 1<<10)), "alice", false},
		"a note of another user on a lock of an earlier version":  {former, managed(annotated(former, "example.com/a", "b"), 9), "bob", false},
		"a note of the holder on a lock of an earlier version":    {former, annotated(former, "example.com/a", "b"), "alice", false},
		"more managers of a lock of an earlier version than once": {former, managed(renewal(former), 100<<10), "alice", false},
		"a reason for a small lock, with too many managers":       {small, managed(reason(small), 128<<10), "bob", false},
		"the reason for a lock of nearly 128 KiB":                 {nearBound, reason(nearBound), "bob", true},
		"the reason for a lock of before the installation":        {older, reason(older), "bob", true},
		"that reason, and a note":                                 {older, annotated(reason(older), "example.com/a", "b"), "bob", false},
		"that reason, with many managers":                         {older, managed(reason(older), MaxGrowth), "bob", false},
		"the renewal of a lock of nearly 128 KiB":                 {nearBound, renewal(nearBound), "alice", true},
		"less in a large lock, by another manager":                {former, managed(enlarged(former, 100<<10-1), 300), "bob", true},
		"less in a lock that is not too large":                    {full, managed(enlarged(full, 15<<10-1), 300), "bob", false},
		"no finalizer, by another manager":                        {finalized(full, "a/b"), managed(full, 300), "bob", true},
		"one finalizer fewer in a large lock":                     {finalized(older, "a/b", "a/c"), managed(finalized(older, "a/b"), 300), "bob", true},
		"one finalizer fewer, and a note":                         {finalized(full, "a/b"), annotated(full, "example.com/a", "much more"), "bob", false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			change := Change{Old: test.old, Updated: test.updated, User: User{Name: test.user}}
			err := change.ValidateSize(jsonBytes(test.old), jsonBytes(test.updated), noon)
			if (err == nil) != test.want || err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v, want allowed: %t", err, test.want)
			}
		})
	}
}

// largest is the request with the longest texts that the type permits, made of one character.
func largest(character string) Acquisition {
	bytes := func(limit int) string { return strings.Repeat(character, limit/len(character)) }
	name := strings.Repeat("n", 253)
	return Acquisition{
		Scope: v1alpha1.ScopeFunction, Function: bytes(512), Key: bytes(512), Owner: bytes(512), TTL: time.Hour,
		Holder: strings.Repeat(character, 1024), Reason: strings.Repeat(character, MaxReasonLength),
		HolderRef:    &v1alpha1.HolderReference{APIVersion: name + "/" + strings.Repeat("v", 63), Kind: strings.Repeat("K", 63), Name: name, UID: types.UID(strings.Repeat("u", 128))},
		ReleaseDelay: time.Hour,
	}
}

// asStored returns the lock of a request as the API server stores it, with its longest metadata.
func asStored(request Acquisition) *v1alpha1.Lock {
	lock := Grant(strings.Repeat("n", 63), request, DefaultLimits(), noon)
	lock.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Lock"}
	lock.Name = strings.Repeat("n", 253)
	lock.UID, lock.ResourceVersion, lock.Generation = "6b0a5f3e-63a5-4f0f-9a53-1d2c4b5a6978", "9223372036854775807", 1
	lock.CreationTimestamp = metav1.NewTime(noon)
	var fields strings.Builder
	for _, name := range []string{"acquireTime", "expireTime", "function", "holder", "holderRef", "key", "owner", "reason", "releaseDelay", "renewTime", "scope", "ttl"} {
		fmt.Fprintf(&fields, `"f:%s":{},`, name)
	}
	lock.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: strings.Repeat("m", 128), Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v1alpha1.GroupVersion.String(),
		Time: new(metav1.NewTime(noon)), FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{` + strings.TrimSuffix(fields.String(), ",") + `}}`),
	}}
	return lock
}

func TestTheLargestRequestFits(t *testing.T) {
	for name, character := range map[string]string{"of one byte": "x", "of two bytes": "é", "of three bytes": "字", "of four bytes": "🔒"} {
		t.Run(name, func(t *testing.T) {
			request := largest(character)
			if _, err := request.Validate(DefaultLimits()); err != nil {
				t.Fatal(err)
			}
			bytes := jsonBytes(asStored(request))
			t.Logf("%d bytes", bytes)
			if err := ValidateSize(bytes); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestARequestWhoseLockWouldBeTooLargeIsRefused(t *testing.T) {
	request := largest("<")
	if _, err := request.Validate(DefaultLimits()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "spec.reason") {
		t.Errorf("got %v", err)
	}
	request.Holder, request.Reason = "alice", ""
	if _, err := request.Validate(DefaultLimits()); err != nil {
		t.Errorf("without a reason: %v", err)
	}
	// Whatever passes is small enough as stored.
	for length := range MaxReasonLength {
		request.Reason = strings.Repeat("<", length)
		if _, err := request.Validate(DefaultLimits()); err != nil {
			if length < 100 {
				t.Errorf("refused with a reason of %d characters: %v", length, err)
			}
			break
		}
		if bytes := jsonBytes(asStored(request)); bytes > MaxBytes {
			t.Fatalf("a lock of %d bytes passes", bytes)
		}
	}
	text, err := json.Marshal("<")
	if err != nil || len(text) != 2+maxEscape {
		t.Errorf("JSON escapes %d bytes, want %d", len(text)-2, maxEscape)
	}
}
