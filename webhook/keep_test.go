package webhook_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// invalidUpdates are merge patches by the holder that the API server must not answer with 422, by the
// field of spec that they make invalid. "kubectl apply --force", Flux and Argo CD answer 422 by
// deleting the lock.
func invalidUpdates() map[string][]string {
	long := strings.Repeat("x", 2000)
	spec := func(fields ...string) []string {
		var patches []string
		for _, field := range fields {
			patches = append(patches, `{"spec":{`+field+`}}`)
		}
		return patches
	}
	holder := func(name, value string) string {
		ref := map[string]string{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}
		ref[name] = value
		text, err := json.Marshal(map[string]any{"spec": map[string]any{"holderRef": ref}})
		Expect(err).NotTo(HaveOccurred())
		return string(text)
	}
	times := []string{`null`, `"soon"`, `5`, `""`, `"2027-01-01T00:00:00,5Z"`, `"2027-01-01T00:00:00+24:00"`, `"2027-01-01"`}
	stamp := func(name string) []string {
		var patches []string
		for _, text := range times[1:] { // An unset stamp is kept.
			patches = append(patches, spec(`"`+name+`":`+text)...)
		}
		return patches
	}
	guard := func(guards string) []string { return spec(`"guards":` + guards) }
	return map[string][]string{
		"key":           spec(`"key":"other"`, `"key":""`, `"key":null`, `"key":5`, `"key":"`+long+`"`, `"key":"a\u0007"`),
		"scope":         spec(`"scope":"Function"`, `"scope":"Function","function":"f"`, `"scope":"Cluster"`, `"scope":5`),
		"function":      spec(`"function":"f"`, `"function":5`, `"function":"`+long+`"`, `"function":"a\u0007"`),
		"owner":         spec(`"owner":"other"`, `"owner":"`+long+`"`, `"owner":5`, `"owner":["a"]`),
		"reason":        spec(`"reason":"`+long+`"`, `"reason":5`),
		"ttl":           spec(`"ttl":"48h"`, `"ttl":"0s"`, `"ttl":"-1h"`, `"ttl":"+1h"`, `"ttl":"1.h"`, `"ttl":".5h"`, `"ttl":"3600000000us"`, `"ttl":""`, `"ttl":5`, `"ttl":"1d"`, `"ttl":"`+strings.Repeat("0h", 40)+`1h"`),
		"releaseDelay":  spec(`"releaseDelay":"1h"`, `"releaseDelay":"+0s"`, `"releaseDelay":"48h"`, `"releaseDelay":"soon"`, `"releaseDelay":5`),
		"expireTime":    append(stamp("expireTime"), spec(`"expireTime":"2020-01-01T00:00:00Z","ttl":null`, `"expireTime":"2199-01-01T00:00:00Z","ttl":null`)...),
		"acquireTime":   stamp("acquireTime"),
		"renewTime":     stamp("renewTime"),
		"holderEndTime": stamp("holderEndTime"),

		// The namespace of these tests does not allow Operator.
		"renewalPolicy":  spec(`"renewalPolicy":"Operator"`, `"renewalPolicy":"Nobody"`, `"renewalPolicy":5`),
		"renewalEndTime": stamp("renewalEndTime"),

		"holder":       spec(`"holder":"bob"`, `"holder":"`+long+`"`, `"holder":5`),
		"holderUID":    spec(`"holderUID":"other"`, `"holderUID":"`+long+`"`, `"holderUID":5`),
		"fencingToken": spec(`"fencingToken":0`, `"fencingToken":-1`, `"fencingToken":"5"`, `"fencingToken":1.5`),

		"holderRef":            spec(`"holderRef":{}`, `"holderRef":"pod"`),
		"holderRef.apiVersion": {holder("apiVersion", ""), holder("apiVersion", long)},
		"holderRef.kind":       {holder("kind", ""), holder("kind", long)},
		"holderRef.name":       {holder("name", ""), holder("name", long)},
		"holderRef.uid":        {holder("uid", ""), holder("uid", long)},

		"guards":              guard(`[` + strings.Repeat(`{"resource":"secrets","name":"a"},`, 16) + `{"resource":"secrets","name":"a"}]`),
		"guards[].resource":   append(guard(`[{"name":"a"}]`), guard(`[{"resource":"Secrets","name":"a"}]`)...),
		"guards[].group":      guard(`[{"resource":"secrets","group":"-","name":"a"}]`),
		"guards[].name":       append(guard(`[{"resource":"secrets"}]`), guard(`[{"resource":"secrets","name":""}]`)...),
		"guards[].selector":   guard(`[{"resource":"secrets","name":"a","selector":{}}]`),
		"guards[].selector.*": append(guard(`[{"resource":"secrets","selector":{"matchExpressions":[{"key":5}]}}]`), guard(`[{"resource":"secrets","selector":{"matchLabels":"all"}}]`)...),
	}
}

// invalidMetadata are merge patches by the holder that are invalid in metadata.
var invalidMetadata = []string{
	`{"metadata":{"labels":{"a":"not a value"}}}`, `{"metadata":{"labels":{"not a key":"a"}}}`, `{"metadata":{"annotations":{"not a key":"a"}}}`,
	`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":""}]}}`,
	`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Event","name":"a","uid":"b"}]}}`,
	`{"metadata":{"finalizers":["a"]}}`, `{"metadata":{"finalizers":["example.com/keep"]}}`,
}

var _ = Describe("An invalid change to a held lock by its holder", func() {
	// refused sends the patch, and checks that the answer makes no tool delete the lock.
	refused := func(ctx context.Context, lock *v1alpha1.Lock, patch string) {
		GinkgoHelper()
		sent := lock.DeepCopy()
		err := alice.Patch(ctx, sent, client.RawPatch(types.MergePatchType, []byte(patch)))
		Expect(err).To(HaveOccurred(), patch)
		Expect(apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)).To(BeTrue(), "%s: %s, %v", patch, apierrors.ReasonForError(err), err)
		// Flux goes by these words, whatever the status.
		Expect(err.Error()).NotTo(MatchRegexp(`is\simmutable|immutable\sfield`), patch)
		Expect(alice.Get(ctx, client.ObjectKeyFromObject(lock), sent)).To(Succeed())
		Expect(sent.ResourceVersion).To(Equal(lock.ResourceVersion), patch)
	}

	It("is refused with a status by which no tool deletes the lock, for each field of the schema", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("kept", ttl(time.Hour)))
		updates := invalidUpdates()
		var known []string
		for _, path := range schemaPaths() {
			name := regexp.MustCompile(`^guards\[\]\.selector\..*`).ReplaceAllString(path, "guards[].selector.*")
			Expect(updates).To(HaveKey(name), "no invalid update of spec.%s", path)
			known = append(known, name)
		}
		// A field that the schema lacks is dropped, and changes nothing.
		Expect(known).To(ContainElements(slices.Collect(maps.Keys(updates))))
		for _, name := range slices.Sorted(maps.Keys(updates)) {
			for _, patch := range updates[name] {
				refused(ctx, lock, patch)
			}
		}
		for _, patch := range invalidMetadata {
			refused(ctx, lock, patch)
		}
	})

	It("says which field is wrong, as for a lock that does not exist yet", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("explained", ttl(time.Hour)))
		err := alice.Patch(ctx, lock.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ttl":"48h"}}`)))
		Expect(err).To(MatchError(ContainSubstring(`Lock.forrst.dev "explained" is invalid: spec.ttl: Invalid value: "48h0m0s": must be at least 1ms and at most 24h0m0s`)))
		cause, hasCause := apierrors.StatusCause(err, "FieldValueInvalid")
		Expect(hasCause).To(BeTrue())
		Expect(cause.Field).To(Equal("spec.ttl"))
	})

	It("is refused as invalid once the lock has expired, and by clients that annotate their requests", func(ctx context.Context) {
		lock := expired(ctx, "not-kept")
		err := alice.Patch(ctx, lock.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ttl":"48h"}}`)))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		held := created(ctx, alice, manifest("requested", ttl(time.Hour)))
		err = alice.Patch(ctx, held.DeepCopy(), client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+v1alpha1.RequestAnnotation+`":"`+v1alpha1.RequestRenewal+`"}},"spec":{"ttl":"48h"}}`)))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
	})
})

// schemaPaths returns the fields of spec in the schema.
func schemaPaths() []string {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join("..", "config", "crd", "bases", "forrst.dev_locks.yaml"))
	Expect(err).NotTo(HaveOccurred())
	var crd apiextensionsv1.CustomResourceDefinition
	Expect(yaml.Unmarshal(text, &crd)).To(Succeed())
	var paths []string
	var walk func(path string, schema *apiextensionsv1.JSONSchemaProps)
	walk = func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		if schema.Items != nil {
			walk(path+"[]", schema.Items.Schema)
		}
		for name, property := range schema.Properties {
			child := strings.TrimPrefix(path+"."+name, ".")
			paths = append(paths, child)
			walk(child, &property)
		}
	}
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	walk("", &schema)
	return paths
}
