package upgrade_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

var _ = Describe("The schema of a Lock", func() {
	It("takes nothing away", func() {
		before, now := schemaOf(earlier), schemaOf(current)
		Expect(before.Properties).NotTo(BeEmpty())
		Expect(taken("", before, now)).To(BeEmpty())
		narrower := *now.DeepCopy()
		spec := narrower.Properties["spec"]
		spec.Required = append(spec.Required, "reason")
		delete(spec.Properties, "ttl")
		narrower.Properties["spec"] = spec
		Expect(taken("", now, narrower)).To(ConsistOf(".spec requires reason", ".spec.ttl is gone"), "the check can fail")
	})
})

// admitSamples has the API server admit the sample Locks of a release, without storing them.
func admitSamples(ctx context.Context, of *release) {
	GinkgoHelper()
	namespace, admitted := environment.Namespace(ctx, "samples-"), 0
	samples, err := os.OpenRoot(filepath.Join(of.root, "config", "samples"))
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = samples.Close() }()
	Expect(fs.WalkDir(samples.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		content, err := samples.ReadFile(path)
		if err != nil {
			return err
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			if !strings.Contains(document, "kind: Lock\n") || strings.Contains(document, "guards:") { // config/default has no guards.
				continue
			}
			if _, err := environment.Admin.Kubectl.Run(ctx, document, "create", "--dry-run=server", "-n", namespace, "-f", "-"); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			admitted++
		}
		return nil
	})).To(Succeed())
	Expect(admitted).To(BeNumerically(">", 0))
}

func schemaOf(of *release) apiextensionsv1.JSONSchemaProps {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(of.root, "config", "crd", "bases", "forrst.dev_locks.yaml"))
	Expect(err).NotTo(HaveOccurred())
	var definition apiextensionsv1.CustomResourceDefinition
	Expect(yaml.UnmarshalStrict(content, &definition)).To(Succeed())
	Expect(definition.Spec.Versions).To(HaveLen(1))
	return *definition.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// taken lists what the schema before takes that the schema now does not: fields, their types and
// lengths, values, and objects without what is required now.
func taken(path string, before, now apiextensionsv1.JSONSchemaProps) (differences []string) {
	for _, name := range now.Required {
		if !slices.Contains(before.Required, name) {
			differences = append(differences, path+" requires "+name)
		}
	}
	differences = append(differences, takenValues(path, before, now)...)
	for name, property := range before.Properties {
		other, ok := now.Properties[name]
		if !ok {
			differences = append(differences, path+"."+name+" is gone")
			continue
		}
		differences = append(differences, taken(path+"."+name, property, other)...)
	}
	if before.Items != nil && before.Items.Schema != nil && now.Items != nil && now.Items.Schema != nil {
		differences = append(differences, taken(path+"[]", *before.Items.Schema, *now.Items.Schema)...)
	}
	return differences
}

// takenValues lists what a field itself may no longer be.
func takenValues(path string, before, now apiextensionsv1.JSONSchemaProps) (differences []string) {
	if before.Type != now.Type {
		differences = append(differences, fmt.Sprintf("%s was of type %s and is of type %s", path, before.Type, now.Type))
	}
	if narrower(before.MaxLength, now.MaxLength) || narrower(before.MaxItems, now.MaxItems) {
		differences = append(differences, path+" may be less long")
	}
	if higher(before.MinLength, now.MinLength) || higher(before.MinItems, now.MinItems) {
		differences = append(differences, path+" must be longer")
	}
	for _, value := range before.Enum {
		if len(now.Enum) > 0 && !slices.ContainsFunc(now.Enum, func(other apiextensionsv1.JSON) bool { return bytes.Equal(other.Raw, value.Raw) }) {
			differences = append(differences, fmt.Sprintf("%s may not be %s", path, value.Raw))
		}
	}
	return differences
}

// narrower reports whether a bound has come down, where nil is none.
func narrower(before, now *int64) bool {
	return now != nil && (before == nil || *now < *before)
}

// higher reports whether a least length has gone up, where nil is 0.
func higher(before, now *int64) bool {
	return now != nil && *now > 0 && (before == nil || *now > *before)
}
