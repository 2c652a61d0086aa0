package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLinkerFlagsNameTheVersion(t *testing.T) {
	got := linkerFlags("v1.36.3")
	for _, want := range []string{"gitVersion=v1.36.3 ", "gitMajor=1 ", "gitMinor=36"} {
		if !strings.Contains(got+" ", want) {
			t.Errorf("flags = %q, want them to contain %q", got, want)
		}
	}
}

func TestProgressDistinguishesDownloadsPackagesAndErrors(t *testing.T) {
	p := &progress{}
	// A write may end anywhere in a line.
	for _, text := range []string{
		"go: downloading k8s.io/api v0.36.3\ngo: downl",
		"oading k8s.io/client-go v0.36.3\ninternal/abi\nk8s.io/api/core/v1\n",
		"# k8s.io/api/core/v1\ntypes.go:1:1: syntax error\nunfin",
	} {
		if _, err := p.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if p.downloaded != 2 || p.compiled != 2 {
		t.Errorf("downloaded = %d, compiled = %d, want 2 and 2", p.downloaded, p.compiled)
	}
	want := "# k8s.io/api/core/v1\ntypes.go:1:1: syntax error\nunfin"
	if got := p.complaints(); got != want {
		t.Errorf("complaints = %q, want %q", got, want)
	}
}

func TestFolderIsCompleteOnlyForItsRecipe(t *testing.T) {
	folder := t.TempDir()
	for _, name := range binaries {
		writeFile(t, filepath.Join(folder, name), "")
	}
	if isComplete(folder, "recipe") {
		t.Error("complete without a stamp")
	}
	if err := writeStamp(folder, "recipe"); err != nil {
		t.Fatal(err)
	}
	if !isComplete(folder, "recipe") {
		t.Error("not complete with all binaries")
	}
	if isComplete(folder, "another recipe") {
		t.Error("complete for another recipe")
	}
	if err := os.Remove(filepath.Join(folder, "kubectl")); err != nil {
		t.Fatal(err)
	}
	if isComplete(folder, "recipe") {
		t.Error("complete without kubectl")
	}
}

func TestRecipeChangesWithThePinnedVersions(t *testing.T) {
	module := t.TempDir()
	seen := map[string]string{}
	for _, content := range []struct{ mod, sum, readyMade, kubernetes string }{
		{mod: "one", sum: "sum"},
		{mod: "two", sum: "sum"},
		{mod: "one", sum: "another sum"},
		{mod: "one", sum: "sum", readyMade: "envtest"},
		{mod: "one", sum: "sum", kubernetes: "1.34.4"},
		{mod: "one", sum: "sum", kubernetes: "1.34.5"},
	} {
		writeFile(t, filepath.Join(module, "go.mod"), content.mod)
		writeFile(t, filepath.Join(module, "go.sum"), content.sum)
		key, err := recipe{module: module, kubernetes: content.kubernetes, readyMade: content.readyMade}.key()
		if err != nil {
			t.Fatal(err)
		}
		if earlier, ok := seen[key]; ok {
			t.Errorf("%v has the key of %s", content, earlier)
		}
		seen[key] = content.mod + ", " + content.sum
	}
}

func TestReplaceFolderRemovesTheOldFolder(t *testing.T) {
	parent := t.TempDir()
	folder, finished := filepath.Join(parent, "k8s"), filepath.Join(parent, "finished")
	writeFile(t, filepath.Join(folder, "old"), "")
	writeFile(t, filepath.Join(finished, "new"), "")
	if err := replaceFolder(folder, finished); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "old")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the old binary still exists")
	}
	if _, err := os.Stat(filepath.Join(folder, "new")); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 {
		t.Errorf("entries = %v, error = %v, want the folder alone", entries, err)
	}
}

func TestReadyMadeBinariesAreLinked(t *testing.T) {
	folder, assets := t.TempDir(), t.TempDir()
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		writeFile(t, filepath.Join(folder, name), "")
	}
	for _, name := range envtestBinaries {
		writeFile(t, filepath.Join(assets, name), "")
	}
	if err := errors.Join(linkReadyMade(folder, assets), writeStamp(folder, "recipe")); err != nil {
		t.Fatal(err)
	}
	if !isComplete(folder, "recipe") {
		t.Error("not complete with what is never ready-made, and links")
	}
	if err := os.Remove(filepath.Join(assets, "etcd")); err != nil {
		t.Fatal(err)
	}
	if isComplete(folder, "recipe") {
		t.Error("complete with a dangling link")
	}
}

func TestOwnBinariesNeedNoBuild(t *testing.T) {
	out := filepath.Join(t.TempDir(), "k8s")
	assets := t.TempDir()
	// Without a module, a build would fail.
	own := recipe{module: "/nonexistent", readyMade: assets}
	err := provide(t.Context(), own, out)
	if err == nil || !strings.Contains(err.Error(), "has no etcd") {
		t.Errorf("error = %v, want one that names the first missing binary", err)
	}
	for _, name := range binaries {
		writeFile(t, filepath.Join(assets, name), "")
	}
	if err := provide(t.Context(), own, out); err != nil {
		t.Error(err)
	}
	err = provide(t.Context(), recipe{module: "/nonexistent", readyMade: "/nonexistent/assets"}, out)
	if err == nil || !strings.Contains(err.Error(), "KUBEBUILDER_ASSETS names /nonexistent/assets") {
		t.Errorf("error = %v, want one that names the folder", err)
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
