// Package jobs has the rules for Jobs that run under a lock: the meaning of their annotations,
// what users may create and change, the phase of a Job, and the order of the waiting Jobs. The
// webhook and the controller use it.
package jobs
