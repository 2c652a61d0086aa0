package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTheImageIsBuiltFromAllItsPackages compares .dockerignore, which lists all folders of
// the image's build, with the imports of the operator.
func TestTheImageIsBuiltFromAllItsPackages(t *testing.T) {
	ignore, err := os.ReadFile("../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	const module = "forrst.dev/lock-operator/"
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{}
	for path := range strings.FieldsSeq(string(output)) {
		if inside, ok := strings.CutPrefix(path, module); ok {
			folder, _, _ := strings.Cut(inside, "/")
			folders[folder] = true
		}
	}
	if len(folders) < 3 {
		t.Fatalf("the operator imports only %v of this module", folders)
	}
	for folder := range folders {
		if !strings.Contains(string(ignore), "\n!"+folder+"/\n") {
			t.Errorf(".dockerignore keeps %s/ out of the image, which cannot be built without it", folder)
		}
	}
}
