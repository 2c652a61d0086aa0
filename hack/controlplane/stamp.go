package main

import (
	"os"
	"path/filepath"
)

// stampName is the file with the recipe key of a folder of binaries.
const stampName = ".built-from"

// isComplete reports whether the folder holds every binary of the recipe.
func isComplete(folder, key string) bool {
	stamp, err := os.ReadFile(filepath.Join(folder, stampName))
	if err != nil || string(stamp) != key {
		return false
	}
	for _, name := range binaries {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}

func writeStamp(folder, key string) error {
	return os.WriteFile(filepath.Join(folder, stampName), []byte(key), 0o644)
}
