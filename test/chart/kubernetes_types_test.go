package chart_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestTheSchemaHasTheTypesOfKubernetes holds the definitions that begin with a capital letter against the types of that name: a
// misspelt member is refused, and each that there is can be set. What the members of a volume are made of is left to the API server.
func TestTheSchemaHasTheTypesOfKubernetes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct{ Definitions map[string]any }
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(schema.Definitions, func(name string, _ any) bool { return name[:1] == strings.ToLower(name[:1]) })
	want := map[string]any{}
	for _, value := range []any{
		corev1.PodSecurityContext{}, corev1.SecurityContext{}, corev1.Affinity{}, corev1.Toleration{}, corev1.TopologySpreadConstraint{},
		corev1.EnvVar{}, corev1.Volume{}, corev1.VolumeMount{}, corev1.ResourceClaim{},
		networkingv1.NetworkPolicyPeer{}, networkingv1.NetworkPolicyEgressRule{}, rbacv1.PolicyRule{}, gatewayv1.ParentReference{},
	} {
		define(want, reflect.TypeOf(value))
	}
	if difference := cmp.Diff(want, schema.Definitions); difference != "" {
		expected, _ := json.Marshal(want)
		t.Errorf("(-Kubernetes +schema):\n%s\nall: %s", difference, expected)
	}
}

// define adds the definition of a type and of those that it is made of, and returns what refers to it: true for a type whose values are no
// objects with members of their own.
func define(definitions map[string]any, of reflect.Type) any {
	switch kind := of.Kind(); {
	case kind == reflect.Pointer:
		return define(definitions, of.Elem())
	case kind == reflect.Slice:
		if items := define(definitions, of.Elem()); items != true {
			return map[string]any{"type": []any{"array", "null"}, "items": items}
		}
		return true
	case kind != reflect.Struct || reflect.PointerTo(of).Implements(reflect.TypeFor[json.Marshaler]()):
		return true
	}
	reference := map[string]any{"$ref": "#/definitions/" + of.Name()}
	if definitions[of.Name()] != nil {
		return reference
	}
	members := map[string]any{}
	definitions[of.Name()] = map[string]any{"type": []any{"object", "null"}, "additionalProperties": false, "properties": members}
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
		case of == reflect.TypeFor[corev1.Volume]():
			members[name] = true
		default:
			members[name] = define(definitions, field.Type)
		}
	}
	return reference
}
