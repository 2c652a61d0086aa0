// Package rules decides what may happen to a Lock: given the object or none, a
// request and a clock reading, it returns the next object or the reason why not.
//
// It holds no Kubernetes client and reads no clock. The façade's engine, the
// admission webhook and the controllers all decide with it, so that no door is
// wider than another.
package rules
