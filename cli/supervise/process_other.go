//go:build unix && !linux

package supervise

import "os"

// memoryFile returns a file without a name.
func memoryFile() (*os.File, error) {
	file, err := os.CreateTemp("", "kubectl-lock-")
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}

// parentOf knows this process's own parent only.
func parentOf(int) int { return 0 }
