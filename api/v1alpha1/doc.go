// Package v1alpha1 defines the Lock, a distributed lock that is an ordinary
// Kubernetes object.
//
// A Lock that exists and has not expired is held; a lock that is free does not
// exist. Its name is derived from what it locks ([FullKey.ObjectName]), so the
// uniqueness of names in etcd decides who holds it, and claim and grant are one
// atomic write. For that reason a Lock has no status.
//
// +kubebuilder:object:generate=true
// +groupName=forrst.dev
package v1alpha1
