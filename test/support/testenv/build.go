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
	return build(ctx, root, "./"+folder, path.Base(folder))
}

// BuildModule is [Build] for the program of a module of its own, named by the module's folder.
func BuildModule(ctx context.Context, folder string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	return build(ctx, filepath.Join(root, folder), ".", "gitops-"+path.Base(folder))
}

// EtcdTools returns the folder of etcdctl and etcdutl, which are built as [Build] does. The folder may have other
// programs.
func EtcdTools(ctx context.Context) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	folder := ""
	for _, tool := range []string{"etcdctl", "etcdutl"} {
		program, err := build(ctx, filepath.Join(root, "hack", "controlplane"), "go.etcd.io/etcd/"+tool+"/v3", tool)
		if err != nil {
			return "", err
		}
		folder = filepath.Dir(program)
	}
	return folder, nil
}

// build builds a package of the module in the folder into bin/test.
func build(ctx context.Context, module, pkg, name string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	program := filepath.Join(root, "bin", "test", name)
	command := exec.CommandContext(ctx, "go", "build", "-o", program, pkg)
	command.Dir = module
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w: %s", pkg, err, output)
	}
	return program, nil
}
