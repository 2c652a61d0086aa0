package webhook

import (
	"time"

	"forrst.dev/lock-operator/webhook/guard"
	"forrst.dev/lock-operator/webhook/server"
)

// maxTwoObjects bounds a review of any objects: the API server takes 3 MiB for one, and sends it
// before and after the change with less than 1 MiB of its own.
const maxTwoObjects = 7 << 20

// ReviewCosts returns what the reviews of each path may cost, as they were measured. A value that is
// decoded into a Lock or a Job, copied, and compared for a patch takes the most.
func ReviewCosts() map[string]server.Cost {
	return map[string]server.Cost{
		LockPath: {MaxBytes: 1 << 20, ValueBytes: 2 << 10, Decodes: func(object, old int) bool {
			return checkSizes(object, old) == nil // So that no review costs more than what a Lock may be.
		}},
		// Its API server waits for a second, and goes on without an answer.
		DeletionAuditPath: {MaxBytes: 1 << 20, ValueBytes: 512, MaxWait: time.Second / 2},
		JobPath:           {MaxBytes: maxTwoObjects, ValueBytes: 2 << 10},
		guard.Path:        {MaxBytes: maxTwoObjects, ValueBytes: 256},
	}
}
