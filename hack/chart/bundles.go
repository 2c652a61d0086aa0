package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
)

// bundleKustomizations maps the name of each bundle to its kustomization in config/.
var bundleKustomizations = map[string]string{
	"install.yaml":                   "default",
	"install-high-availability.yaml": "overlays/high-availability",
	"install-guards.yaml":            "overlays/guards",
	"install-policies.yaml":          "overlays/policies",
	"install-cert-manager.yaml":      "samples/certmanager",
	"install-full.yaml":              "overlays/full",
}

func writeBundles(config, folder, image string) error {
	var images []types.Image
	if image != "" {
		named, err := imageOf(image)
		if err != nil {
			return err
		}
		images = []types.Image{named}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, path := range bundleKustomizations {
		rendered, err := build(config, &types.Kustomization{Resources: []string{path}, Images: images})
		if err != nil {
			return err
		}
		text, err := rendered.AsYaml()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// imageOf takes a reference apart: a digest, or a tag after the last slash, ends it.
func imageOf(reference string) (types.Image, error) {
	named := types.Image{Name: "lock-operator", NewName: reference}
	if name, digest, hasDigest := strings.Cut(reference, "@"); hasDigest {
		named.NewName, named.Digest = name, digest
	} else if colon := strings.LastIndex(reference, ":"); colon > strings.LastIndex(reference, "/") {
		named.NewName, named.NewTag = reference[:colon], reference[colon+1:]
	}
	if named.NewName == "" || named.NewTag == "" && named.Digest == "" {
		return types.Image{}, fmt.Errorf("image %q: must have a tag or a digest", reference)
	}
	return named, nil
}
