// Package jobs holds the rules for Jobs that run under a lock, as pure functions: what
// their annotations mean, what may be created and changed, in which phase a Job is and
// in which order Jobs are served. Webhook and controller ask them.
package jobs
