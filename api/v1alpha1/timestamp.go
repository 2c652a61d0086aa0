package v1alpha1

import (
	"encoding/json"
	"fmt"
	"time"
)

// timestampLayout writes six digits after the second, so that times written by
// the service sort as text.
const timestampLayout = "2006-01-02T15:04:05.000000Z07:00"

// Timestamp is a point in time. It is written in UTC with microseconds, like
// [k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime], but it reads any RFC 3339
// time: a manifest may say "2026-12-24T00:00:00Z", which MicroTime refuses.
// The schema refuses what is no RFC 3339 time though package time reads it: a
// comma before the fraction, a zone 24 hours away. UnmarshalJSON does not, since
// a lock that is stored already and cannot be read would blind every cache.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Format=date-time
// +kubebuilder:validation:Pattern=`^[^,]*(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
type Timestamp struct {
	time.Time `json:"-"`
}

// NewTimestamp returns t in UTC, truncated to the microseconds that are stored.
func NewTimestamp(t time.Time) Timestamp {
	return Timestamp{Time: t.UTC().Truncate(time.Microsecond)}
}

// DeepCopyInto copies the receiver into out. A time.Time is an immutable value.
func (t *Timestamp) DeepCopyInto(out *Timestamp) { *out = *t }

// Equal reports whether both are the same point in time, or both are nil.
func (t *Timestamp) Equal(u *Timestamp) bool {
	if t == nil || u == nil {
		return t == u
	}
	return t.Time.Equal(u.Time)
}

// String returns the text that MarshalJSON writes.
func (t Timestamp) String() string { return t.UTC().Format(timestampLayout) }

// MarshalJSON implements [encoding/json.Marshaler].
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(t.String())
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (t *Timestamp) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("a time must be a string: %w", err)
	}
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("%q is not an RFC 3339 time such as 2026-12-24T00:00:00Z", text)
	}
	*t = NewTimestamp(parsed)
	return nil
}
