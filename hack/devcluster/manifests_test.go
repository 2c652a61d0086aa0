package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const rendered = `
# Only a comment.
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: hooks
webhooks:
- name: first.example.com
  failurePolicy: Fail
  clientConfig:
    service: {name: webhook, namespace: forrst-system, path: /mutate}
- name: second.example.com
  clientConfig:
    service: {name: webhook, namespace: forrst-system}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: account
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: locks.forrst.dev
---
apiVersion: v1
kind: Namespace
metadata:
  name: forrst-system
`

func TestManifestsAreSortedByDependency(t *testing.T) {
	objects := decode(t, rendered)
	sortForCreation(objects)

	var kinds []string
	for _, object := range objects {
		kinds = append(kinds, object.GetKind())
	}
	want := []string{"Namespace", "CustomResourceDefinition", "MutatingWebhookConfiguration", "ServiceAccount"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

func TestWebhooksAreCalledDirectly(t *testing.T) {
	objects := decode(t, rendered)
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() == "hooks" })
	if err := directWebhooks(objects[i], "127.0.0.1:9443", []byte("authority")); err != nil {
		t.Fatal(err)
	}

	want := []any{
		map[string]any{
			"name":          "first.example.com",
			"failurePolicy": "Fail",
			"clientConfig":  map[string]any{"url": "https://127.0.0.1:9443/mutate", "caBundle": "YXV0aG9yaXR5"},
		},
		map[string]any{
			"name":         "second.example.com",
			"clientConfig": map[string]any{"url": "https://127.0.0.1:9443", "caBundle": "YXV0aG9yaXR5"},
		},
	}
	if diff := cmp.Diff(want, objects[i].Object["webhooks"]); diff != "" {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
}

func TestOtherObjectsStayAsTheyAre(t *testing.T) {
	for _, object := range decode(t, rendered) {
		if object.GetName() == "hooks" {
			continue
		}
		before := object.DeepCopy()
		if err := directWebhooks(object, "127.0.0.1:9443", nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, object); diff != "" {
			t.Errorf("%s (-before +after):\n%s", object.GetKind(), diff)
		}
	}
}

func TestEstablished(t *testing.T) {
	for name, test := range map[string]struct {
		conditions      []any
		wantEstablished bool
	}{
		"no conditions yet": {},
		"names accepted only": {
			conditions: []any{map[string]any{"type": "NamesAccepted", "status": "True"}},
		},
		"not established": {
			conditions: []any{map[string]any{"type": "Established", "status": "False"}},
		},
		"established": {
			conditions: []any{
				map[string]any{"type": "NamesAccepted", "status": "True"},
				map[string]any{"type": "Established", "status": "True"},
			},
			wantEstablished: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			definition := &unstructured.Unstructured{Object: map[string]any{
				"status": map[string]any{"conditions": test.conditions},
			}}
			if _, err := establishedAt(definition); (err == nil) != test.wantEstablished {
				t.Errorf("establishedAt() = %v, want established: %v", err, test.wantEstablished)
			}
		})
	}
}

func decode(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := decodeManifests(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
