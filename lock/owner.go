package lock

import "k8s.io/apimachinery/pkg/util/uuid"

// NewOwner returns a new owner token, a random UUID v4.
func NewOwner() string { return string(uuid.NewUUID()) }
