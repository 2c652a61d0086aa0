package rules

import (
	"encoding/json"
	"fmt"
	"regexp"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// maxDurationLength is the longest text of a duration, in characters: a bound of the schema.
const maxDurationLength = 64

var (
	// These are the texts that the schema allows of those that the Go types read.
	storedDuration = regexp.MustCompile(`^(\d+([.]\d+)?(ms|s|m|h))+$`)
	storedTime     = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)
	storedPolicy   = regexp.MustCompile(`^(Holder|Operator)$`)
)

// IsByTool reports whether the change is written like a manifest. Clients that take, renew and hand
// off locks annotate their requests.
func (c Change) IsByTool() bool {
	_, isRequest := c.Updated.Annotations[v1alpha1.RequestAnnotation]
	return !isRequest && !isNewAcquisition(c.Updated, c.Old)
}

// ValidateStored reports what the API server would refuse of an admitted change after admission, by the
// schema and the rules for metadata. submitted is the JSON of the object as it was sent. The API server
// refuses such objects as invalid, whereupon tools with an option to force a change delete the lock and
// create it again. The error is an [*InvalidError].
func (c Change) ValidateStored(admitted *v1alpha1.Lock, submitted []byte) error {
	problems := identityChanged(&admitted.Spec, &c.Old.Spec)
	if utf8.RuneCountInString(admitted.Spec.Reason) > MaxReasonLength {
		problems = append(problems, field.TooLong(specPath.Child("reason"), field.OmitValueType{}, MaxReasonLength))
	}
	if expire, renew := admitted.Spec.ExpireTime, admitted.Spec.RenewTime; expire != nil && renew != nil && !expire.After(renew.Time) {
		problems = append(problems, field.Invalid(specPath.Child("expireTime"), expire.String(), "must be later than renewTime"))
	}
	spelling, err := validateSpelling(submitted)
	if err != nil {
		return err
	}
	problems = append(problems, spelling...)
	metadata := field.NewPath("metadata")
	if uid := c.Updated.UID; uid != "" && uid != c.Old.UID {
		problems = append(problems, field.Forbidden(metadata.Child("uid"), "is that of another object; leave it out of a manifest"))
	}
	problems = append(problems, v1validation.ValidateLabels(admitted.Labels, metadata.Child("labels"))...)
	problems = append(problems, validation.ValidateAnnotations(admitted.Annotations, metadata.Child("annotations"))...)
	problems = append(problems, validation.ValidateOwnerReferences(admitted.OwnerReferences, metadata.Child("ownerReferences"))...)
	if len(problems) > 0 {
		return &InvalidError{Problems: problems}
	}
	return nil
}

// validateVersion refuses a change to another version of the lock than the stored one. A manifest that names it, as
// "kubectl get --output yaml" writes it, is invalid: tools with an option to force a change answer a conflict by
// deleting the lock. To a client that writes what it has read, it is a conflict. The error is an [*InvalidError]
// or [ErrStale].
func (c Change) validateVersion() error {
	switch version := c.Updated.ResourceVersion; {
	case version == "", version == c.Old.ResourceVersion:
		return nil
	case c.appliesVersion(version):
		return &InvalidError{Problems: field.ErrorList{field.Forbidden(field.NewPath("metadata", "resourceVersion"),
			"is not the one that the lock has now; leave it out of a manifest")}}
	}
	return ErrStale
}

// appliesVersion reports whether the change applies a manifest, and the version is from there. The API server does not
// tell an apply on its side from an update, so the manager must have applied fields, and never have updated any.
func (c Change) appliesVersion(version string) bool {
	var manifest struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if text := c.Updated.Annotations[lastAppliedAnnotation]; text != "" && json.Unmarshal([]byte(text), &manifest) == nil && manifest.Metadata.ResourceVersion == version {
		return true
	}
	operations := map[metav1.ManagedFieldsOperationType]bool{}
	for _, entry := range c.Updated.ManagedFields {
		if entry.Manager == c.FieldManager {
			operations[entry.Operation] = true
		}
	}
	return operations[metav1.ManagedFieldsOperationApply] && !operations[metav1.ManagedFieldsOperationUpdate]
}

// identityChanged reports changes of what a lock is identified by. The words are not those of the schema:
// Flux takes "is immutable" in any error for the advice to delete the object.
func identityChanged(next, old *v1alpha1.LockSpec) field.ErrorList {
	var problems field.ErrorList
	for _, part := range []struct{ name, next, old string }{
		{"key", next.Key, old.Key}, {"scope", string(next.Scope), string(old.Scope)}, {"function", next.Function, old.Function},
	} {
		if part.next != part.old {
			problems = append(problems, field.Forbidden(specPath.Child(part.name),
				fmt.Sprintf("cannot change; create another Lock for another %s", part.name)))
		}
	}
	return problems
}

// validateSpelling reports texts that the Go types read and the schema does not allow.
func validateSpelling(submitted []byte) (field.ErrorList, error) {
	var texts struct {
		Spec map[string]any `json:"spec"`
	}
	if err := json.Unmarshal(submitted, &texts); err != nil {
		return nil, fmt.Errorf("decode the lock: %w", err)
	}
	var problems field.ErrorList
	check := func(allowed *regexp.Regexp, maxLength int, what string, names ...string) {
		for _, name := range names {
			if text, ok := texts.Spec[name].(string); ok && (len(text) > maxLength || !allowed.MatchString(text)) {
				problems = append(problems, field.Invalid(specPath.Child(name), field.OmitValueType{}, what))
			}
		}
	}
	check(storedDuration, maxDurationLength, "must be a duration with units, such as 30s, 5m or 1h30m", "ttl", "releaseDelay")
	check(storedTime, MaxBytes, "must be an RFC 3339 time such as 2026-12-24T00:00:00Z", "acquireTime", "renewTime", "expireTime", "renewalEndTime", "holderEndTime")
	check(storedPolicy, MaxBytes, "must be Holder or Operator; leave it out for Holder", "renewalPolicy")
	return problems, nil
}
