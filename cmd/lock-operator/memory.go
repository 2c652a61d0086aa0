package main

import (
	"math"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

// memoryShare is how much of the container's memory limit the Go runtime may use. The rest is for what
// the runtime does not count, and for the moment that a collection takes.
const memoryShare = 0.9

// limitMemory makes the garbage collector keep the process below the memory limit of its container,
// which the kernel would otherwise kill it for. GOMEMLIMIT in the environment takes precedence. Without
// a limit, or outside of a container, nothing changes.
func limitMemory(container memlimit.Provider, log logr.Logger) {
	limit, err := memlimit.Set(memlimit.WithProvider(container), memlimit.WithRatio(memoryShare))
	given, isGiven := os.LookupEnv("GOMEMLIMIT")
	switch {
	case err != nil:
		log.Info("The memory limit of the container is not known, so garbage is collected without regard to it; set GOMEMLIMIT", "reason", err.Error())
	case isGiven:
		log.Info("Memory is limited by the environment", "GOMEMLIMIT", given)
	case limit == math.MaxInt64:
		log.Info("Memory is not limited")
	default:
		log.Info("Memory is limited by the container", "GOMEMLIMIT", limit, "share", memoryShare)
	}
}
