package main

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// build renders a kustomization whose paths are relative to the folder config.
func build(config string, kustomization *types.Kustomization) (resmap.ResMap, error) {
	folder, err := os.MkdirTemp("", "kustomization-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	config, err = filepath.Abs(config)
	if err != nil {
		return nil, err
	}
	relative, err := filepath.Rel(folder, config)
	if err != nil {
		return nil, err
	}
	for _, paths := range [][]string{kustomization.Resources, kustomization.Components, kustomization.Transformers} {
		for i := range paths {
			paths[i] = filepath.Join(relative, paths[i])
		}
	}
	text, err := yaml.Marshal(kustomization)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), text, 0o600); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	// Namespaces and CRDs first, as kubectl renders it.
	options.Reorder = krusty.ReorderOptionLegacy
	rendered, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", config, err)
	}
	return rendered, nil
}
