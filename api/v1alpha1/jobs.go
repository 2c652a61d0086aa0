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
	// LockPolicyAnnotation says what the operator does with the Job while another holder has
	// the lock: "wait" (the default), "skip" or "fail".
	LockPolicyAnnotation = "forrst.dev/lock-policy"
	// LockWaitTimeoutAnnotation is how long the Job waits at most before it fails, a
	// duration. Unset means without end.
	LockWaitTimeoutAnnotation = "forrst.dev/lock-wait-timeout"
	// LockPriorityAnnotation is an integer; Jobs with a higher one are started before
	// other waiters of the same lock. Unset means 0.
	LockPriorityAnnotation = "forrst.dev/lock-priority"
)

// FencingTokenAnnotation is set in the pod template of a Job when it is started under a
// lock. The pods read the fencing token of the grant from it by the downward API. On an object
// with [FencedByAnnotation] it is the token under which the object was last changed: a decimal
// number without leading zeros, of at most 18 digits.
const FencingTokenAnnotation = "forrst.dev/fencing-token"

// Marks of the operator on a Job with [LockLabel].
const (
	// LockFinalizer keeps the Job until its last pod has ended and the lock is released.
	LockFinalizer = "forrst.dev/lock"
	// LockPausedAnnotation is "true" if a user, not the operator, has suspended the Job. A
	// paused Job does not wait for the lock until a user resumes it. Users may set the
	// annotation on a waiting Job, which is suspended already.
	LockPausedAnnotation = "forrst.dev/lock-paused"
	// LockQueuedTimeAnnotation is the RFC 3339 time since which the Job waits: its
	// creation, or the time when it was resumed or lost its lock.
	LockQueuedTimeAnnotation = "forrst.dev/lock-queued-time"
	// LockWaitingAnnotation tells people about a waiting Job: its place in the queue, the
	// key, the holder, and the time of this information; of one that was refused its lock or its
	// start, the refusal and the next try; of one that holds the lock, which Job
	// has the pods that keep it from its start. The operator rewrites it every ten minutes and
	// removes it when the Job is started.
	LockWaitingAnnotation = "forrst.dev/lock-waiting"
	// LockStoppingAnnotation is "true" on a Job that ran without the lock, from the time
	// when the operator suspends it until its last pod has ended.
	LockStoppingAnnotation = "forrst.dev/lock-stopping"
)
