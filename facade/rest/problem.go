package rest

import "forrst.dev/lock-operator/lock/problems"

// What callers are told of errors is shared with package lock/lockhttp.
type (
	// Problem is an error as callers are told it (RFC 9457).
	Problem = problems.Document
	// Right is a right in the terms of a Role.
	Right = problems.Right
	// FieldError is one mistake in a request.
	FieldError = problems.FieldError
)
