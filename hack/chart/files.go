package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
)

// The templates of the chart replace these by the namespace and the name of the release. config/identity
// puts them wherever an object names either.
const (
	placeholderNamespace = "release-namespace"
	placeholderPrefix    = "release-"
)

// injectedAuthority is an annotation that the chart sets if cert-manager is to fill in the authority.
const injectedAuthority = "cert-manager.io/inject-ca-from"

// templated are the kinds that the chart has templates of its own for, since values decide about them.
var templated = []string{"Namespace", "ServiceAccount", "Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "Certificate", "Issuer"}

// writeChartFiles renders everything, and writes the objects that the chart takes as they are into one
// file for each switch of its values.
func writeChartFiles(config, folder string) error {
	rendered, err := build(config, &types.Kustomization{
		Namespace:    placeholderNamespace,
		NamePrefix:   placeholderPrefix,
		Resources:    []string{"overlays/full"},
		Transformers: []string{"identity"},
	})
	if err != nil {
		return err
	}
	files := map[string]*bytes.Buffer{}
	for _, object := range rendered.Resources() {
		if slices.Contains(templated, object.GetKind()) {
			continue
		}
		name, err := fileOf(object)
		if err != nil {
			return err
		}
		// Kustomize does not know that these have none.
		if kind := object.GetKind(); kind == "FlowSchema" || kind == "PriorityLevelConfiguration" {
			if err := object.SetNamespace(""); err != nil {
				return err
			}
		}
		if err := object.SetAnnotations(without(object.GetAnnotations(), injectedAuthority)); err != nil {
			return err
		}
		text, err := object.AsYAML()
		if err != nil {
			return err
		}
		if files[name] == nil {
			files[name] = bytes.NewBufferString("# Rendered from config/ by make generate.\n")
		}
		fmt.Fprintf(files[name], "---\n%s", text)
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fileOf returns the file of an object. An object that no switch of the chart is responsible for is an
// error, so that none is forgotten.
func fileOf(object *resource.Resource) (string, error) {
	kind, name := object.GetKind(), strings.TrimPrefix(object.GetName(), placeholderPrefix+"lock-operator")
	switch kind {
	case "CustomResourceDefinition":
		return "crd.yaml", nil
	case "FlowSchema", "PriorityLevelConfiguration":
		return "priority.yaml", nil
	case "Secret", "ConfigMap":
		return "certificates.yaml", nil
	case "MutatingWebhookConfiguration":
		return "webhooks.yaml", nil
	}
	switch name {
	case "-guards", "-fence":
		return "guards.yaml", nil
	case "-certificates", "-authority":
		return "certificates.yaml", nil
	case "-audit":
		return "webhooks.yaml", nil
	case "-jobs", "-cronjobs", "-job-status":
		return "policies.yaml", nil
	case "-keys", "-durations", "-job-creators", "-parameters":
		return "lock-policies.yaml", nil
	case "-view", "-edit", "-admin", "-call":
		return "user-roles.yaml", nil
	case "-metrics":
		return "metrics-role.yaml", nil
	case "-facade", "-controllers", "-webhook":
		if strings.HasPrefix(kind, "ValidatingAdmissionPolicy") {
			return "policies.yaml", nil
		}
		return "roles.yaml", nil
	}
	return "", fmt.Errorf("%s %s belongs to no file of the chart", kind, object.GetName())
}

func without(annotations map[string]string, name string) map[string]string {
	delete(annotations, name)
	return annotations
}
