package testenv

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
)

// Build returns the path of a program of this module, named by its package's folder. Suites
// share the program, which is linked only if it is out of date.
func Build(ctx context.Context, folder string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	program := filepath.Join(root, "bin", "test", path.Base(folder))
	command := exec.CommandContext(ctx, "go", "build", "-o", program, "./"+folder)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./%s: %w: %s", folder, err, output)
	}
	return program, nil
}
