// Package fairqueue is a work queue of controllers that serves urgent requests first and namespaces in
// turn, so that the work of one namespace does not delay that of another.
package fairqueue
