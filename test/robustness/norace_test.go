//go:build !race

package robustness_test

// raceEnabled says whether the replicas are built with the race detector, like the test.
const raceEnabled = false
