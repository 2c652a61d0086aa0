package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// stampName is the file with the recipe key of a folder of binaries.
const stampName = ".built-from"

// recipeKey identifies the inputs of a build. A new version or flag, or another machine's
// folder, changes it and leads to a new build.
func recipeKey(module, readyMade string) (string, error) {
	hash := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("reading the pinned versions: %w", err)
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
	}
	fmt.Fprintln(hash, packages, linkerFlags("version"), runtime.GOOS, runtime.GOARCH)
	if readyMade != "" {
		fmt.Fprintln(hash, readyMade)
	}
	return fmt.Sprintf("%x\n", hash.Sum(nil)), nil
}

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
