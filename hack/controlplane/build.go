package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	etcdPackage      = "go.etcd.io/etcd/server/v3"
	kubernetesModule = "k8s.io/kubernetes"
	versionPackage   = "k8s.io/component-base/version"

	controllerManagerPackage = kubernetesModule + "/cmd/kube-controller-manager"
	schedulerPackage         = kubernetesModule + "/cmd/kube-scheduler"
)

// packages are the commands to build. The checked-in go.mod lists them as tools, which pins
// their versions.
var packages = []string{
	etcdPackage,
	kubernetesModule + "/cmd/kube-apiserver",
	controllerManagerPackage,
	schedulerPackage,
	kubernetesModule + "/cmd/kubectl",
}

// binaries are the files of a complete build.
var binaries = append([]string{"kube-controller-manager", "kube-scheduler"}, envtestBinaries...)

// envtestBinaries are the binaries that setup-envtest also installs.
var envtestBinaries = []string{"etcd", "kube-apiserver", "kubectl"}

// build compiles the packages below the workshop folder, shows its progress, and returns
// the folder with the finished binaries. It links ready-made binaries instead of building
// them; kube-controller-manager and kube-scheduler are never ready-made.
func build(ctx context.Context, wanted recipe, workshop string) (string, error) {
	packages := packages
	if wanted.readyMade != "" {
		packages = []string{controllerManagerPackage, schedulerPackage}
	}
	workshop, err := filepath.Abs(workshop)
	if err != nil {
		return "", err
	}
	finished := filepath.Join(workshop, "finished")
	scratch := filepath.Join(workshop, "scratch")
	derived := filepath.Join(workshop, "module")
	for _, folder := range []string{finished, scratch, derived} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return "", err
		}
	}

	progress := startProgress()
	defer progress.stop()
	// The go command downloads as many modules at a time as it may use processors.
	command := goCommand{module: wanted.module, scratch: scratch, progress: progress, env: []string{"GOMAXPROCS=16"}}
	if wanted.kubernetes != "" {
		command.module = derived
		if err := derive(ctx, command, wanted.kubernetes); err != nil {
			return "", err
		}
	}

	// The progress needs the total number of packages.
	dependencies, err := command.run(ctx, append([]string{"list", "-deps"}, packages...)...)
	if err != nil {
		return "", err
	}
	version, err := command.run(ctx, "list", "-m", "-f", "{{.Version}}", kubernetesModule)
	if err != nil {
		return "", err
	}

	progress.compiling(len(strings.Fields(dependencies)))
	command.env = nil
	if os.Getenv("GOGC") == "" {
		// With less frequent garbage collection, compiling takes a tenth less time.
		command.env = []string{"GOGC=400"}
	}
	// The linker drops debug information anyway; not writing it saves the compiler a tenth
	// of its time. The Makefile builds the operator with the same flags.
	args := []string{"build", "-v", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", linkerFlags(strings.TrimSpace(version)), "-o", finished}
	if _, err := command.run(ctx, append(args, packages...)...); err != nil {
		return "", err
	}
	if wanted.readyMade != "" {
		return finished, linkReadyMade(finished, wanted.readyMade)
	}
	// The go command names the binary of etcd's server module after its folder.
	return finished, os.Rename(filepath.Join(finished, "server"), filepath.Join(finished, "etcd"))
}

// linkerFlags drop the symbol tables, which halves the binaries, and set the version that
// the API server reports. Clients derive the server's features from it.
func linkerFlags(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
		versionPackage, version, major, minor)
}

// A goCommand runs the go command in a module.
type goCommand struct {
	module string
	// scratch is the folder of the go command's temporary files, which remain when it is
	// interrupted.
	scratch  string
	progress *progress
	// env is added to the environment.
	env []string
}

// run returns the standard output of the go command. Its standard error drives the
// progress.
func (c goCommand) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = c.module
	// Without cgo, the build needs no C compiler. A go.work file above the clone must not
	// change the pinned versions.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOTMPDIR="+c.scratch)
	cmd.Env = append(cmd.Env, c.env...)
	// A stopped go command does not stop its compilers. All of them are one process group,
	// which is stopped as a whole.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

	var output strings.Builder
	cmd.Stdout = &output
	cmd.Stderr = c.progress
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s in %s: %w\n%s", args[0], c.module, err, c.progress.complaints())
	}
	return output.String(), nil
}
