package compact_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/engine/compact"
	"forrst.dev/lock-operator/lock/rules"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 123456000, time.UTC)

// usual is a lock as the façade takes it.
func usual(number int) *v1alpha1.Lock {
	lock := rules.Grant("payments", rules.Acquisition{
		Key: fmt.Sprint("billing:report:", number), Owner: fmt.Sprintf("6b0a5f3e-63a5-4f0f-9a53-%012d", number),
		Holder: "system:serviceaccount:payments:worker", HolderUID: "2f6ad4b1-0000-4000-8000-8a4e4f6f7a10",
	}, rules.DefaultLimits(), now)
	lock.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Lock"}
	lock.UID, lock.ResourceVersion, lock.Generation = types.UID(fmt.Sprintf("77cf2a0d-7d1e-4b7e-8a7f-%012d", number)), fmt.Sprint(100_000_000+number), 1
	lock.CreationTimestamp = metav1.NewTime(now.Truncate(time.Second).Local())
	return lock
}

// complete is a lock of which every field of the spec, and of the metadata that locks can have, is set.
func complete(t *testing.T) *v1alpha1.Lock {
	t.Helper()
	at := func(after time.Duration) *v1alpha1.Timestamp { return new(v1alpha1.NewTimestamp(now.Add(after))) }
	lock := usual(1)
	lock.GenerateName, lock.SelfLink = "generated-", "/self" //nolint:staticcheck // a cache keeps what it gets
	lock.DeletionTimestamp, lock.DeletionGracePeriodSeconds = new(metav1.NewTime(now.Truncate(time.Second).Local())), new(int64(0))
	lock.Labels, lock.Annotations = map[string]string{"a": "b", "c": ""}, map[string]string{v1alpha1.AcquisitionAnnotation: "id"}
	lock.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: new(true), BlockOwnerDeletion: new(false)}}
	lock.Finalizers = []string{"example.com/f", "example.com/g"}
	lock.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}")}}
	lock.Spec = v1alpha1.LockSpec{
		Key: "clé", Scope: v1alpha1.ScopeFunction, Function: "f", Owner: "o", TTL: &v1alpha1.Duration{Duration: time.Minute}, Holder: "h", HolderUID: "hu",
		HolderRef:    &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"},
		ReleaseDelay: &v1alpha1.Duration{}, HolderEndTime: at(4), Reason: strings.Repeat("x", 300),
		Guards:        []v1alpha1.Guard{{Group: "apps", Resource: "deployments", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}},
		RenewalPolicy: v1alpha1.RenewalByOperator, RenewalEndTime: at(48 * time.Hour),
		AcquireTime: at(time.Microsecond), RenewTime: at(2 * time.Microsecond), ExpireTime: at(24 * time.Hour), FencingToken: new(int64(1 << 62)),
	}
	for _, part := range []any{lock.Spec, lock.ObjectMeta} {
		value := reflect.ValueOf(part)
		for index := range value.NumField() {
			if value.Field(index).IsZero() {
				t.Fatalf("%s is not set: the test, and perhaps the package, does not know it", value.Type().Field(index).Name)
			}
		}
	}
	return lock
}

func TestALockIsWhatItWas(t *testing.T) {
	bare := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	negative := usual(2)
	negative.Spec.TTL, negative.Spec.FencingToken = &v1alpha1.Duration{Duration: -time.Second}, new(int64(0))
	negative.Spec.ExpireTime = new(v1alpha1.NewTimestamp(time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)))
	negative.Spec.AcquireTime = new(v1alpha1.NewTimestamp(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)))
	spelled := complete(t)
	for text, duration := range map[string]*v1alpha1.Duration{"60m": spelled.Spec.TTL, "0h": spelled.Spec.ReleaseDelay} {
		if err := json.Unmarshal([]byte(`"`+text+`"`), duration); err != nil {
			t.Fatal(err)
		}
	}
	guarded := usual(3)
	guarded.Spec.Guards = []v1alpha1.Guard{{Resource: "pods", Name: "p"}}
	long := usual(4)
	long.Name = strings.Repeat("n", 253)
	impossible := usual(5)
	impossible.Name = strings.Repeat("n", 300)
	// Locks grown by one optional field each, since each is encoded by its presence.
	locks := map[string]*v1alpha1.Lock{
		"of the façade": usual(1), "with everything": complete(t), "without a spec": bare, "of odd numbers": negative,
		"with guards": guarded, "of the longest name": long, "of a name that none has": impossible, "empty": {},
		"with durations as a user spells them": spelled,
	}
	spec := reflect.ValueOf(complete(t).Spec)
	for index := range spec.NumField() {
		lock := usual(6)
		reflect.ValueOf(&lock.Spec).Elem().Field(index).Set(spec.Field(index))
		locks["with "+spec.Type().Field(index).Name] = lock
		lacking := complete(t)
		reflect.ValueOf(&lacking.Spec).Elem().Field(index).SetZero()
		locks["with all but "+spec.Type().Field(index).Name] = lacking
	}
	for title, lock := range locks {
		t.Run(title, func(t *testing.T) {
			kept := compact.Of(lock)
			if got := kept.Full(); !reflect.DeepEqual(got, lock) {
				t.Errorf("it has become %+v, and was %+v", got, lock)
			}
			if got := kept.NamespacedName(); got.Name != lock.Name || got.Namespace != lock.Namespace {
				t.Errorf("its name has become %s", got)
			}
			if got := kept.ExpireTime(); !got.Equal(lock.Spec.ExpireTime) {
				t.Errorf("it expires at %s", got)
			}
			if got := kept.GetObjectMeta(); got.GetUID() != lock.UID || got.GetResourceVersion() != lock.ResourceVersion {
				t.Errorf("its metadata is %+v", got)
			}
		})
	}
}

func TestWhatIsNoLockHasNoForm(t *testing.T) {
	if got := compact.From(&metav1.PartialObjectMetadata{}); got != nil || got.Full() != nil {
		t.Errorf("it is %+v", got)
	}
}

// TestAUsualLockTakesLittleMemory fails if a field that most locks have in common, or a map or pointer
// for each lock, is kept with every one of them.
func TestAUsualLockTakesLittleMemory(t *testing.T) {
	const count, most = 10_000, 330
	kept := make([]*compact.Lock, count)
	before := heapInUse()
	for number := range kept {
		kept[number] = compact.Of(usual(number))
	}
	each := float64(heapInUse()-before) / count
	runtime.KeepAlive(kept)
	t.Logf("%.0f bytes each", each)
	if each > most {
		t.Errorf("a lock takes %.0f bytes, want at most %d", each, most)
	}
}

func heapInUse() int64 {
	var stats runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func BenchmarkOf(b *testing.B) {
	lock := usual(1)
	b.ReportAllocs()
	for b.Loop() {
		compact.Of(lock)
	}
}

func BenchmarkFull(b *testing.B) {
	kept := compact.Of(usual(1))
	b.ReportAllocs()
	for b.Loop() {
		kept.Full()
	}
}

func TestTheUIDOfNone(t *testing.T) {
	var none *compact.Lock
	if none.UID() != "" || new(compact.Lock).UID() != "" {
		t.Error("there is one")
	}
}

func TestTheUIDTakesNoDecoding(t *testing.T) {
	long := usual(1)
	long.Annotations = map[string]string{"a": strings.Repeat("x", 10_000)}
	named := usual(2)
	named.UID = "named"
	for _, lock := range []*v1alpha1.Lock{usual(3), complete(t), long, named, {ObjectMeta: metav1.ObjectMeta{Name: "a"}}} {
		for _, kept := range []*compact.Lock{compact.Of(lock), compact.Wrap(lock)} {
			if uid := kept.UID(); uid != lock.UID {
				t.Errorf("%q, want %q", uid, lock.UID)
			}
			if allocated := testing.AllocsPerRun(100, func() { _ = kept.UID() }); allocated > 2 {
				t.Errorf("the UID of %q takes %v allocations", lock.UID, allocated)
			}
		}
	}
	if uid := (*compact.Lock)(nil).UID(); uid != "" {
		t.Errorf("%q of none", uid)
	}
}
