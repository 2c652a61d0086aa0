package rules

import "k8s.io/apimachinery/pkg/util/resourceversion"

// IsNewer reports whether a resourceVersion of an object is later than another one of it.
// The API server's can always be compared; anything else is not newer.
func IsNewer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0
}
