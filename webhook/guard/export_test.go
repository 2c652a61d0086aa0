package guard

import "slices"

// Kubernetes returns the exempt users.
func Kubernetes() []string { return slices.Clone(kubernetes) }
