package v1alpha1

// LockLabel marks, with the value "true", a Job that runs only while it holds the lock
// that its annotations name. It may not change.
const LockLabel = "forrst.dev/lock"

// Annotations by which a Job with [LockLabel] says what lock it runs under, and how. Only
// [LockWaitTimeoutAnnotation] and [LockPriorityAnnotation] may change.
const (
	// LockKeyAnnotation is the key of the lock, as in [LockSpec].Key. Required.
	LockKeyAnnotation = "forrst.dev/lock-key"
	// LockScopeAnnotation is the scope of the lock, Global unless set.
	LockScopeAnnotation = "forrst.dev/lock-scope"
	// LockFunctionAnnotation is the function of a lock of scope Function.
	LockFunctionAnnotation = "forrst.dev/lock-function"
	// LockTTLAnnotation is the ttl of the lock, a duration such as "10m"; 5 minutes unless
	// set. The lock is renewed while the Job has pods, so that it only says how long an
	// outage of the operator may last before others may take the lock.
	LockTTLAnnotation = "forrst.dev/lock-ttl"
	// LockPolicyAnnotation says what is done if somebody else holds the lock: "wait", which
	// is meant unless it is set, "skip" or "fail".
	LockPolicyAnnotation = "forrst.dev/lock-policy"
	// LockWaitTimeoutAnnotation is how long the Job waits at most before it fails, a
	// duration; without end unless set.
	LockWaitTimeoutAnnotation = "forrst.dev/lock-wait-timeout"
	// LockPriorityAnnotation is an integer; Jobs with a higher one are started before
	// others that wait for the same lock. 0 unless set.
	LockPriorityAnnotation = "forrst.dev/lock-priority"
)

// FencingTokenAnnotation is set in the pod template of a Job when it is started under a
// lock, so that its pods find the fencing token of the grant by the downward API.
const FencingTokenAnnotation = "forrst.dev/fencing-token" //nolint:gosec // a name, and no secret

// Marks of the operator on a Job with [LockLabel].
const (
	// LockFinalizer keeps the Job until its last pod has ended and the lock is released.
	LockFinalizer = "forrst.dev/lock"
	// LockPausedAnnotation is "true" if somebody other than the operator has suspended the
	// Job, which therefore does not wait for the lock until it is resumed. Users may set it
	// on a Job that waits, which is suspended already.
	LockPausedAnnotation = "forrst.dev/lock-paused"
	// LockQueuedTimeAnnotation is the RFC 3339 time from which on the Job waits: its
	// creation, or when it was resumed or lost its lock.
	LockQueuedTimeAnnotation = "forrst.dev/lock-queued-time"
	// LockWaitingAnnotation says of a Job that waits at which place it is, for what, and who
	// holds it, as of a time that it names. It is for people, is rewritten every ten minutes
	// and goes when the wait ends.
	LockWaitingAnnotation = "forrst.dev/lock-waiting"
	// LockStoppingAnnotation is "true" from when the operator suspends a Job that runs
	// without the lock until its last pod has ended.
	LockStoppingAnnotation = "forrst.dev/lock-stopping"
)
