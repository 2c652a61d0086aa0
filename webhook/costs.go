package webhook

import (
	"time"

	"forrst.dev/lock-operator/webhook/guard"
	"forrst.dev/lock-operator/webhook/server"
)

const (
	// maxTwoLocks bounds a review of Locks: one of each size that is decoded, before and after the change.
	maxTwoLocks = 2*maxDecodedBytes + 32<<10
	// maxTwoJobs bounds a review of Jobs, and maxJob what a user makes of a Job under a lock: its next change can be reviewed as
	// well, also by a server that does not verify its clients.
	maxTwoJobs = 512 << 10
	maxJob     = 128 << 10
	// maxTwoObjects bounds a review of any objects: the API server takes 3 MiB for one, and sends it
	// before and after the change with less than 1 MiB of its own.
	maxTwoObjects = 7 << 20
)

// ReviewCosts returns what the reviews of each path may cost, as was measured with the content that takes most. What is
// decoded into a Lock or a Job, copied, and compared for a patch takes the most.
func ReviewCosts() map[string]server.Cost {
	return map[string]server.Cost{
		LockPath: {MaxBytes: maxTwoLocks, ByteCost: 700},
		// Its API server waits for a second, and goes on without an answer.
		DeletionAuditPath: {MaxBytes: maxTwoLocks, ByteCost: 200, MaxWait: time.Second / 2},
		JobPath:           {MaxBytes: maxTwoJobs, ByteCost: 700},
		guard.Path:        {MaxBytes: maxTwoObjects, ByteCost: 50},
	}
}
