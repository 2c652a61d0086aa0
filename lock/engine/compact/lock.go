package compact

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
	"unique"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Lock is one state of a [v1alpha1.Lock]. It does not change, and is safe for concurrent use. Its zero
// value is none. It is a runtime.Object, and tells its metadata, as the stores of informers ask of what
// they keep.
type Lock struct {
	// full is the lock itself, as long as it is worth its memory: text says the same.
	full atomic.Pointer[v1alpha1.Lock]
	// shared is what many locks have in common.
	shared unique.Handle[shared]
	// text begins with the times of fixedTimes and the name, see encode. Empty if full is to stay.
	text       string
	nameLength uint8
}

type shared struct {
	typeMeta                               metav1.TypeMeta
	namespace, function, holder, holderUID string
	scope                                  v1alpha1.Scope
}

var (
	_ runtime.Object            = (*Lock)(nil)
	_ metav1.ObjectMetaAccessor = (*Lock)(nil)
)

// Of returns the state in compact form, which keeps nothing of the given lock. A lock that has no such
// form stays as it is: one with a name that the API server would not store.
func Of(lock *v1alpha1.Lock) *Lock {
	text, err := encode(lock)
	if err != nil || len(lock.Name) > maxName {
		return Wrap(lock)
	}
	return &Lock{text: text, nameLength: uint8(len(lock.Name)), shared: unique.Make(shared{
		typeMeta: lock.TypeMeta, namespace: lock.Namespace,
		scope: lock.Spec.Scope, function: lock.Spec.Function, holder: lock.Spec.Holder, holderUID: lock.Spec.HolderUID,
	})}
}

// Wrap returns the lock as it is, which must not change any more.
func Wrap(lock *v1alpha1.Lock) *Lock {
	wrapped := &Lock{}
	wrapped.full.Store(lock)
	return wrapped
}

// From returns the state that the object is, whether compact or not; nil if it is no lock.
func From(object any) *Lock {
	switch object := object.(type) {
	case *Lock:
		return object
	case *v1alpha1.Lock:
		return Wrap(object)
	}
	return nil
}

// Full returns the lock, which may be shared and must not be modified; nil for nil.
func (l *Lock) Full() *v1alpha1.Lock {
	if l == nil {
		return nil
	}
	if full := l.full.Load(); full != nil {
		return full
	}
	return l.decode()
}

// NamespacedName returns the name of the lock, which keeps no more than l does in memory.
func (l *Lock) NamespacedName() types.NamespacedName {
	if l.text == "" {
		full := l.Full()
		return types.NamespacedName{Namespace: full.Namespace, Name: full.Name}
	}
	return types.NamespacedName{Namespace: l.shared.Value().namespace, Name: l.name()}
}

func (l *Lock) name() string { return l.text[fixedBytes:][:l.nameLength] }

// UID returns the UID of the lock, which takes much less time than Full; empty for nil and the zero value.
func (l *Lock) UID() types.UID {
	if l == nil {
		return ""
	}
	if full := l.full.Load(); full != nil {
		return full.UID
	}
	if l.text == "" {
		return ""
	}
	rest := l.text[fixedBytes+int(l.nameLength):]
	rest = rest[lengthOfText(rest):] // without the metadata
	uid := reader{rest: []byte(rest[:lengthOfText(rest)])}
	return types.UID(uid.text())
}

// ExpireTime returns when the lock expires; nil if it does not say.
func (l *Lock) ExpireTime() *v1alpha1.Timestamp {
	if l.text == "" {
		return l.Full().Spec.ExpireTime
	}
	return timeAt(l.text, expireTime)
}

// GetObjectKind implements runtime.Object.
func (l *Lock) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. What does not change is its own copy.
func (l *Lock) DeepCopyObject() runtime.Object { return l }

// GetObjectMeta implements [metav1.ObjectMetaAccessor]. The result must not be modified.
func (l *Lock) GetObjectMeta() metav1.Object { return &l.Full().ObjectMeta }

// maxName is the longest name of a Kubernetes object.
const maxName = 253

// The times have a fixed place in the text.
const (
	acquireTime = iota
	renewTime
	expireTime
	holderEndTime
	fixedTimes

	fixedBytes = 8 * fixedTimes
)

// noTime stands for a time that is not set. It is no time that a Lock can have.
const noTime = -1 << 63

func timesOf(spec *v1alpha1.LockSpec) [fixedTimes]**v1alpha1.Timestamp {
	return [fixedTimes]**v1alpha1.Timestamp{&spec.AcquireTime, &spec.RenewTime, &spec.ExpireTime, &spec.HolderEndTime}
}

func timeAt(text string, which int) *v1alpha1.Timestamp {
	micros := int64(binary.LittleEndian.Uint64([]byte(text[8*which:][:8])))
	if micros == noTime {
		return nil
	}
	return new(v1alpha1.NewTimestamp(time.UnixMicro(micros)))
}

// durationsOf and textsOf are the fields of a spec that encode writes one after another.
func durationsOf(spec *v1alpha1.LockSpec) [2]**v1alpha1.Duration {
	return [...]**v1alpha1.Duration{&spec.TTL, &spec.ReleaseDelay}
}

func textsOf(uid *types.UID, spec *v1alpha1.LockSpec) [4]*string {
	return [...]*string{(*string)(uid), &spec.Key, &spec.Owner, &spec.Reason}
}

func textsOfRef(ref *v1alpha1.HolderReference) [4]*string {
	return [...]*string{&ref.APIVersion, &ref.Kind, &ref.Name, (*string)(&ref.UID)}
}

// encode returns all of the lock that is not shared. Lengths, and numbers that may be absent, are
// varints, where 0 means absent.
func encode(lock *v1alpha1.Lock) (string, error) {
	spec := lock.Spec
	text := make([]byte, 0, 512)
	for _, at := range timesOf(&spec) {
		micros := int64(noTime)
		if *at != nil {
			micros = (*at).UnixMicro()
		}
		text = binary.LittleEndian.AppendUint64(text, uint64(micros))
	}
	text = append(text, lock.Name...)
	meta := lock.ObjectMeta
	meta.Name, meta.Namespace, meta.UID = "", "", ""
	encoded, err := meta.Marshal()
	if err != nil {
		return "", fmt.Errorf("encode metadata: %w", err)
	}
	text = appendText(text, string(encoded))
	uid := lock.UID
	for _, field := range textsOf(&uid, &spec) {
		text = appendText(text, *field)
	}
	for _, duration := range durationsOf(&spec) {
		text = appendDuration(text, *duration)
	}
	text = appendOptional(text, spec.FencingToken, func(token int64) int64 { return token })
	if spec.HolderRef == nil && spec.RenewalPolicy == "" && spec.RenewalEndTime == nil && len(spec.Guards) == 0 {
		return string(text), nil
	}
	text = appendOptional(text, spec.HolderRef, func(v1alpha1.HolderReference) int64 { return 0 })
	if spec.HolderRef != nil {
		for _, field := range textsOfRef(spec.HolderRef) {
			text = appendText(text, *field)
		}
	}
	text = appendText(text, string(spec.RenewalPolicy))
	text = appendOptional(text, spec.RenewalEndTime, func(at v1alpha1.Timestamp) int64 { return at.UnixMicro() })
	if len(spec.Guards) > 0 {
		if encoded, err = json.Marshal(spec.Guards); err != nil {
			return "", fmt.Errorf("encode guards: %w", err)
		}
		text = append(text, encoded...)
	}
	return string(text), nil
}

// appendText writes a UUID, as most UIDs and owners are, as its number.
func appendText(to []byte, text string) []byte {
	if id, err := uuid.Parse(text); err == nil && id.String() == text {
		return append(binary.AppendUvarint(to, uuidLength), id[:]...)
	}
	return append(binary.AppendUvarint(to, uint64(len(text))+1), text...)
}

// uuidLength stands for the length of a UUID. That of any other text is one more than it is.
const uuidLength = 0

// lengthOfText is how much of the text appendText has written first.
func lengthOfText(text string) int {
	length, size := binary.Uvarint([]byte(text[:min(len(text), binary.MaxVarintLen64)]))
	if length == uuidLength {
		return size + len(uuid.UUID{})
	}
	return size + int(length-1)
}

func appendOptional[T any](to []byte, value *T, number func(T) int64) []byte {
	if value == nil {
		return append(to, 0)
	}
	return binary.AppendVarint(append(to, 1), number(*value))
}

// spelled stands before the text of a duration that package time spells differently.
const spelled = 2

func appendDuration(to []byte, duration *v1alpha1.Duration) []byte {
	if duration != nil && duration.String() != duration.Duration.String() {
		return appendText(append(to, spelled), duration.String())
	}
	return appendOptional(to, duration, func(d v1alpha1.Duration) int64 { return int64(d.Duration) })
}

// reader reads what encode has written, so nothing can be missing.
type reader struct{ rest []byte }

func (r *reader) take(count int) []byte {
	taken := r.rest[:count]
	r.rest = r.rest[count:]
	return taken
}

func (r *reader) text() string {
	length, size := binary.Uvarint(r.rest)
	r.take(size)
	if length == uuidLength {
		return uuid.UUID(r.take(len(uuid.UUID{}))).String()
	}
	return string(r.take(int(length - 1)))
}

func (r *reader) optional() (number int64, isPresent bool) {
	if r.take(1)[0] == 0 {
		return 0, false
	}
	number, size := binary.Varint(r.rest)
	r.take(size)
	return number, true
}

func (r *reader) duration() *v1alpha1.Duration {
	if r.rest[0] != spelled {
		if number, isPresent := r.optional(); isPresent {
			return &v1alpha1.Duration{Duration: time.Duration(number)}
		}
		return nil
	}
	r.take(1)
	duration, err := v1alpha1.ParseDuration(r.text())
	if err != nil {
		panic(fmt.Sprintf("compact: a duration that was encoded here: %v", err))
	}
	return &duration
}

func (l *Lock) decode() *v1alpha1.Lock {
	common := l.shared.Value()
	lock := &v1alpha1.Lock{TypeMeta: common.typeMeta}
	spec := &lock.Spec
	for which, at := range timesOf(spec) {
		*at = timeAt(l.text, which)
	}
	rest := reader{rest: []byte(l.text[fixedBytes+int(l.nameLength):])}
	if err := lock.ObjectMeta.Unmarshal([]byte(rest.text())); err != nil {
		panic(fmt.Sprintf("compact: metadata that was encoded here: %v", err)) // A defect of apimachinery.
	}
	lock.Namespace, lock.Name = common.namespace, l.name()
	spec.Scope, spec.Function, spec.Holder, spec.HolderUID = common.scope, common.function, common.holder, common.holderUID
	for _, field := range textsOf(&lock.UID, spec) {
		*field = rest.text()
	}
	for _, duration := range durationsOf(spec) {
		*duration = rest.duration()
	}
	if token, isPresent := rest.optional(); isPresent {
		spec.FencingToken = &token
	}
	if len(rest.rest) == 0 {
		return lock
	}
	if _, isPresent := rest.optional(); isPresent {
		spec.HolderRef = &v1alpha1.HolderReference{}
		for _, field := range textsOfRef(spec.HolderRef) {
			*field = rest.text()
		}
	}
	spec.RenewalPolicy = v1alpha1.RenewalPolicy(rest.text())
	if micros, isPresent := rest.optional(); isPresent {
		spec.RenewalEndTime = new(v1alpha1.NewTimestamp(time.UnixMicro(micros)))
	}
	if len(rest.rest) > 0 {
		if err := json.Unmarshal(rest.rest, &spec.Guards); err != nil {
			panic(fmt.Sprintf("compact: guards that were encoded here: %v", err))
		}
	}
	return lock
}
