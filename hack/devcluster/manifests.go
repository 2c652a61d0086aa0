package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// overlay is the kustomization of a development cluster, below the config folder.
const overlay = "dev"

// renderManifests returns the objects to install, in an order in which they can be created.
func renderManifests(ctx context.Context, kubectl, config string) ([]*unstructured.Unstructured, error) {
	folder := filepath.Join(config, overlay)
	var output, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, kubectl, "kustomize", folder)
	cmd.Stdout = &output
	cmd.Stderr = &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("rendering the manifests of %s: %w: %s", folder, err, strings.TrimSpace(complaint.String()))
	}
	objects, err := decodeManifests(&output)
	if err != nil {
		return nil, fmt.Errorf("reading the manifests of %s: %w", folder, err)
	}
	sortForCreation(objects)
	return objects, nil
}

func decodeManifests(text io.Reader) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(text, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		// A comment between separators decodes to nothing.
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// sortForCreation puts objects that others depend on first.
func sortForCreation(objects []*unstructured.Unstructured) {
	rank := func(object *unstructured.Unstructured) int {
		switch object.GetKind() {
		case "Namespace":
			return 0
		case "CustomResourceDefinition":
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
}

// directWebhooks makes the API server call the webhooks of an object, if it has any, at the
// host and port. Without nodes, a Service has no endpoints.
func directWebhooks(object *unstructured.Unstructured, address string, authority []byte) error {
	switch object.GetKind() {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
	default:
		return nil
	}
	webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return err
	}
	for i := range webhooks {
		webhook, ok := webhooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("%s %s: webhooks[%d] is not an object", object.GetKind(), object.GetName(), i)
		}
		path, _, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		if err != nil {
			return err
		}
		webhook["clientConfig"] = map[string]any{
			"url":      "https://" + address + path,
			"caBundle": base64.StdEncoding.EncodeToString(authority),
		}
	}
	return unstructured.SetNestedSlice(object.Object, webhooks, "webhooks")
}
