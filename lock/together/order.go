package together

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// Order returns an acquisition like the given one for each key, in the order of the full keys, unless there are problems:
// no key, more than [MaxLocks], an invalid one, or two for the same lock.
func Order(acquisition rules.Acquisition, keys []string) ([]rules.Acquisition, field.ErrorList) {
	path := field.NewPath("keys")
	switch {
	case len(keys) == 0:
		return nil, field.ErrorList{field.Required(path, "must have at least one")}
	case len(keys) > MaxLocks:
		return nil, field.ErrorList{field.TooMany(path, len(keys), MaxLocks)}
	}
	var problems field.ErrorList
	ordered := make([]rules.Acquisition, 0, len(keys))
	isNamed := map[v1alpha1.FullKey]bool{}
	for index, key := range keys {
		acquisition.Key = key
		if err := v1alpha1.ValidateKey(key); err != nil {
			problems = append(problems, field.Invalid(path.Index(index), key, err.Error()))
		} else if isNamed[acquisition.FullKey()] {
			problems = append(problems, field.Duplicate(path.Index(index), key))
		}
		isNamed[acquisition.FullKey()] = true
		ordered = append(ordered, acquisition)
	}
	slices.SortFunc(ordered, func(a, b rules.Acquisition) int { return cmp.Compare(a.FullKey(), b.FullKey()) })
	return ordered, problems
}
