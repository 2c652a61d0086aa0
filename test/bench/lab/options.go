package lab

import "path/filepath"

// Options say what to measure and with which programs. All paths are absolute.
type Options struct {
	// Effort is a factor for the number of rounds.
	Effort float64
	// LiveLocks is how many locks the suite scale holds.
	LiveLocks int
	// Devcluster and Operator are programs, Binaries is the folder of the control plane's
	// programs, Config the folder of the manifests.
	Devcluster, Operator, Binaries, Config string
	// Against is the folder of another commit, built, to compare with, or empty.
	Against string
}

// RoundsOf returns the number of rounds to run if count is usual; at least two.
func (o Options) RoundsOf(count int) int { return max(2, int(o.Effort*float64(count))) }

// ofAgainst returns the same options with the programs and the manifests of the other commit.
func (o Options) ofAgainst() Options {
	o.Devcluster, o.Operator = filepath.Join(o.Against, "bin", "devcluster"), filepath.Join(o.Against, "bin", "lock-operator")
	o.Config = filepath.Join(o.Against, "config")
	return o
}
