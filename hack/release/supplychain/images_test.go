package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var (
	baseImage   = regexp.MustCompile(`(?m)^FROM (?:--\S+ )*(\S+)`)
	pinnedImage = regexp.MustCompile(`(?m)^ARG (\w+)=\S+@sha256:[0-9a-f]{64}$`)
)

// A tag can be moved to another image, a digest cannot.
func TestBaseImagesArePinned(t *testing.T) {
	recipe, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	pinned := map[string]bool{}
	for _, each := range pinnedImage.FindAllSubmatch(recipe, -1) {
		pinned["${"+string(each[1])+"}"] = true
	}
	stages := baseImage.FindAllSubmatch(recipe, -1)
	if len(stages) == 0 {
		t.Fatal("the Dockerfile has no base image")
	}
	for _, stage := range stages {
		if image := string(stage[1]); !pinned[image] {
			t.Errorf("FROM %s is not an ARG with a digest", image)
		}
	}
}

// A folder that is missing in the build is found by the build only, which is slow.
func TestTheBuildGetsAllPackages(t *testing.T) {
	ignored, err := os.ReadFile("../../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "list", "-C", "../../..", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}", "./cmd/...")
	packages, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(packages)) {
		folder, _, _ := strings.Cut(strings.TrimPrefix(path, "forrst.dev/lock-operator/"), "/")
		if !strings.Contains(string(ignored), "\n!"+folder+"/\n") {
			t.Errorf(".dockerignore leaves out %s, which the programs need", folder)
		}
	}
}
