package main

import (
	"os"
	"regexp"
	"testing"
)

var (
	baseImage   = regexp.MustCompile(`(?m)^FROM (?:--\S+ )*(\S+)`)
	pinnedImage = regexp.MustCompile(`(?m)^ARG (\w+)=\S+@sha256:[0-9a-f]{64}$`)
)

// A tag can be moved to another image, a digest cannot.
func TestBaseImagesArePinned(t *testing.T) {
	recipe, err := os.ReadFile("../../Dockerfile")
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
