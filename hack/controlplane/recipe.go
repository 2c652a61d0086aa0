package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
)

// A recipe says what to build.
type recipe struct {
	// module is the folder of the module that pins the versions.
	module string
	// kubernetes is the version of Kubernetes to build in place of the pinned one, such as
	// 1.34.4. A module that pins it is then derived. Empty means the pinned one.
	kubernetes string
	// readyMade is a folder of binaries that need not be built. Empty means none.
	readyMade string
}

// versionForm is the form of a version, as the variable K8S has it.
var versionForm = regexp.MustCompile(`^1\.\d+\.\d+$`)

// validate refuses what cannot be built, in terms of the variables that chose it.
func (r recipe) validate() error {
	if r.kubernetes != "" && !versionForm.MatchString(r.kubernetes) {
		return fmt.Errorf("K8S is %q, want a version with a patch number, such as 1.34.4", r.kubernetes)
	}
	if r.readyMade == "" {
		return nil
	}
	if r.kubernetes != "" {
		return fmt.Errorf("K8S chooses Kubernetes %s, and KUBEBUILDER_ASSETS the binaries in %s; unset one of them", r.kubernetes, r.readyMade)
	}
	if info, err := os.Stat(r.readyMade); err != nil || !info.IsDir() {
		return fmt.Errorf("KUBEBUILDER_ASSETS names %s, which is not a folder; correct or unset it", r.readyMade)
	}
	for _, name := range envtestBinaries {
		if _, err := os.Stat(filepath.Join(r.readyMade, name)); err != nil {
			return fmt.Errorf("KUBEBUILDER_ASSETS names %s, which has no %s; correct or unset it", r.readyMade, name)
		}
	}
	return nil
}

// key identifies the inputs of a build. A new version or flag, or another machine's folder,
// changes it and leads to a new build.
func (r recipe) key() (string, error) {
	hash := sha256.New()
	if r.kubernetes != "" {
		// The release fixes what the module that is derived from it pins.
		fmt.Fprintln(hash, kubernetesModule, r.kubernetes)
	} else {
		for _, name := range []string{"go.mod", "go.sum"} {
			content, err := os.ReadFile(filepath.Join(r.module, name))
			if err != nil {
				return "", fmt.Errorf("reading the pinned versions: %w", err)
			}
			fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
		}
	}
	fmt.Fprintln(hash, packages, linkerFlags("version"), runtime.GOOS, runtime.GOARCH)
	if r.readyMade != "" {
		fmt.Fprintln(hash, r.readyMade)
	}
	return fmt.Sprintf("%x\n", hash.Sum(nil)), nil
}
