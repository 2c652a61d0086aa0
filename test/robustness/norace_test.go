//go:build !race

package robustness_test

// raceEnabled has the replicas built with the race detector, like the test.
const raceEnabled = false
