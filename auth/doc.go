// Package auth authenticates callers by TokenReview and authorizes them by
// SubjectAccessReview. It remembers the answers for a few seconds.
package auth
