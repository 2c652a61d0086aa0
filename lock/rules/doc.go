// Package rules decides what may happen to a Lock. Given the object, if there is one, a request
// and a clock reading, it returns the next object or the reason for a refusal.
//
// It has no Kubernetes client and reads no clock. The façade's engine, the admission webhook and
// the controllers all use it; each of them permits the same.
package rules
