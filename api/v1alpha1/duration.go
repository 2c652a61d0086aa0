package v1alpha1

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a length of time. It reads and writes what
// [k8s.io/apimachinery/pkg/apis/meta/v1.Duration] does, but keeps the spelling that it
// has read, as long as its length does not change: a manifest that says "1h" does not
// become "1h0m0s" when the lock is read and written, which tools that compare manifests
// would take for a change. The zero value is no time, "0s".
//
// Compare with Equal: two spellings of one length are equal, but not by ==.
//
// +kubebuilder:validation:Type=string
type Duration struct {
	time.Duration `json:"-"`

	// spelling is what was read. Empty if it is that of package time.
	spelling string
}

// DeepCopyInto copies the receiver into out.
func (d *Duration) DeepCopyInto(out *Duration) { *out = *d }

// Equal reports whether both are of the same length, in whatever spelling, or both are nil.
func (d *Duration) Equal(e *Duration) bool {
	if d == nil || e == nil {
		return d == e
	}
	return d.Duration == e.Duration
}

// String returns the text that MarshalJSON writes.
func (d Duration) String() string {
	if d.spelling != "" {
		// Duration may have been set since.
		if length, err := time.ParseDuration(d.spelling); err == nil && length == d.Duration {
			return d.spelling
		}
	}
	return d.Duration.String()
}

// MarshalJSON implements [encoding/json.Marshaler].
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(d.String())
}

// ParseDuration returns the duration that the text spells in the form of [time.ParseDuration],
// whose errors it returns.
func ParseDuration(text string) (Duration, error) {
	length, err := time.ParseDuration(text)
	if err != nil {
		return Duration{}, err
	}
	if text == length.String() {
		text = ""
	}
	return Duration{Duration: length, spelling: text}, nil
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("a duration must be a string: %w", err)
	}
	parsed, err := ParseDuration(text)
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}
