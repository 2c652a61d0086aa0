package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// derivedModule is the path of a module that is made for one build.
const derivedModule = "derived"

// goMod is what "go mod edit -json" says of a go.mod file, as far as it matters here.
type goMod struct {
	Replace []struct {
		Old modulePath `json:"Old"`
		New modulePath `json:"New"`
	} `json:"Replace"`
}

type modulePath struct {
	Path string `json:"Path"`
}

// derive makes the command's folder a module that pins the packages as the given version of
// Kubernetes was released: with its go.mod, and so with the etcd that it was built and
// tested with. The go command records the checksums as it downloads, and verifies them as
// the environment says.
func derive(ctx context.Context, command goCommand, version string) error {
	path := filepath.Join(command.module, "go.mod")
	// The go command has to find this module, not one in a folder above.
	if err := os.WriteFile(path, []byte("module "+derivedModule+"\n"), 0o644); err != nil {
		return err
	}
	released, err := command.run(ctx, "list", "-m", "-f", "{{.GoMod}}", kubernetesModule+"@v"+version)
	if err != nil {
		return fmt.Errorf("looking for Kubernetes %s: %w", version, err)
	}
	content, err := os.ReadFile(strings.TrimSpace(released))
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return err
	}
	description, err := command.run(ctx, "mod", "edit", "-json")
	if err != nil {
		return err
	}
	var parsed goMod
	if err := json.Unmarshal([]byte(description), &parsed); err != nil {
		return fmt.Errorf("reading the go.mod of Kubernetes %s: %w", version, err)
	}
	if _, err := command.run(ctx, append([]string{"mod", "edit"}, pins(parsed, version)...)...); err != nil {
		return err
	}
	// Later commands find go.mod and go.sum complete.
	_, err = command.run(ctx, append([]string{"list", "-mod=mod", "-deps"}, packages...)...)
	return err
}

// pins returns the flags of "go mod edit" that turn Kubernetes' own go.mod into one that
// requires that version, with the staging modules of the same release in place of folders.
func pins(kubernetes goMod, version string) []string {
	flags := []string{"-module=" + derivedModule, "-require=" + kubernetesModule + "@v" + version}
	for _, replaced := range kubernetes.Replace {
		if strings.HasPrefix(replaced.New.Path, "./staging/") {
			flags = append(flags, fmt.Sprintf("-replace=%[1]s=%[1]s@v0.%[2]s", replaced.Old.Path, strings.TrimPrefix(version, "1.")))
		}
	}
	return flags
}
