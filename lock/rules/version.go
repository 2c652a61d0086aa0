package rules

import "k8s.io/apimachinery/pkg/util/resourceversion"

// IsNewer reports whether a resourceVersion of an object is later than another one of the same
// object. Versions that cannot be compared, which an API server does not send, are not newer.
func IsNewer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0
}
