// Package auth asks the API server who calls and what they may do, by TokenReview and
// SubjectAccessReview. It remembers the answers for a few seconds.
package auth
