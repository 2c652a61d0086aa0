package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tool builds one of krew's own programs.
func tool(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "sigs.k8s.io/krew/cmd/"+name)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return path
}

// platforms are those that "make cli-binaries" builds for.
var platforms = []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64", "windows-arm64"}

// packed returns a folder with the archives of binaries that print their platform, and the manifest.
func packed(t *testing.T) string {
	t.Helper()
	binaries, out := t.TempDir(), t.TempDir()
	for _, platform := range platforms {
		name := "kubectl-lock-" + platform
		if strings.HasPrefix(platform, "windows") {
			name += ".exe"
		}
		if err := os.WriteFile(filepath.Join(binaries, name), []byte("#!/bin/sh\necho "+platform+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o := options{manifest: "lock.yaml", license: "../../../LICENSE", binaries: binaries, version: "v1.2.3", url: "https://example.com/v1.2.3", out: out}
	if err := o.run(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestManifestsAreValid(t *testing.T) {
	validate := tool(t, "validate-krew-manifest")
	for name, path := range map[string]string{"with placeholders": "lock.yaml", "filled in": filepath.Join(packed(t), "lock.yaml")} {
		if output, err := exec.CommandContext(t.Context(), validate, "-skip-install", "-manifest", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, output)
		}
	}
	content, err := os.ReadFile("lock.yaml")
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "lock.yaml")
	if err := os.WriteFile(broken, []byte(strings.Replace(string(content), "arch: arm64", "arch: amd64", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), validate, "-skip-install", "-manifest", broken).Run(); err == nil {
		t.Error("two archives for one platform pass")
	}
}

// krew checks the sum, unpacks the archive and links the binary.
func TestKrewInstallsEachPlatform(t *testing.T) {
	krew, folder := tool(t, "krew"), packed(t)
	for _, platform := range platforms {
		t.Run(platform, func(t *testing.T) {
			root := t.TempDir()
			system, architecture, _ := strings.Cut(platform, "-")
			install := exec.CommandContext(t.Context(), krew, "install",
				"--manifest="+filepath.Join(folder, "lock.yaml"), "--archive="+filepath.Join(folder, "kubectl-lock-"+platform+".tar.gz"))
			install.Env = append(os.Environ(), "KREW_ROOT="+root, "KREW_OS="+system, "KREW_ARCH="+architecture, "KREW_NO_UPGRADE_CHECK=1")
			if output, err := install.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			installed := filepath.Join(root, "store", "lock", "v1.2.3")
			for _, name := range []string{"LICENSE", "kubectl-lock"} {
				if system == "windows" && name != "LICENSE" {
					name += ".exe"
				}
				if _, err := os.Stat(filepath.Join(installed, name)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestArchivesDependOnTheirContentAlone(t *testing.T) {
	first, second := packed(t), packed(t)
	for _, name := range []string{"lock.yaml", "kubectl-lock-linux-amd64.tar.gz"} {
		one, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.ReadFile(filepath.Join(second, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, other) {
			t.Errorf("%s differs", name)
		}
	}
}
