package upgrade_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// seen is a character of keys that people see, but no white space.
const seen = `[^\p{Cc}\p{Z}\x{AD}\x{34F}\x{61C}\x{115F}-\x{1160}\x{17B4}-\x{17B5}\x{180B}-\x{180F}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}` +
	`\x{3164}\x{FE00}-\x{FE0F}\x{FEFF}\x{FFA0}\x{FFF0}-\x{FFF8}\x{1BCA0}-\x{1BCA3}\x{1D173}-\x{1D17A}\x{E0000}-\x{E0FFF}]`

// changedOnPurpose are the differences between "from" and this tree that refuse nothing which was not refused before, but for
// new keys that differ from others in what nobody sees. They go as "from" is moved on.
var changedOnPurpose = map[string]bool{
	// In place of rules of spec about the token of a grant.
	`.spec.fencingToken has the new rule self == oldSelf`: true,
	// In place of rules that refused control characters. Locks under keys that they refuse, too, are still written.
	`.spec.function has the new pattern ^(` + seen + `+(\p{Z}+` + seen + `+)*)?$`: true,
	`.spec.key has the new pattern ^` + seen + `+(\p{Z}+` + seen + `+)*$`:         true,
	// In place of the rules of spec about what is stamped, and what a grant keeps.
	".spec has the new rule (also without oldSelf) " +
		`optional.of(self).?owner.hasValue() && optional.of(self).?holder.hasValue() && ` +
		`timestamp(dyn(optional.of(self).?expireTime.value())) > ` +
		`timestamp(dyn(optional.of(self).?renewTime.value())) && (optional.of(self).?scope.orValue("") == ` +
		`'Function') == (optional.of(self).?function.orValue("").size() > 0) && (!oldSelf.hasValue() ? ` +
		`optional.of(self).?acquireTime.hasValue() : timestamp(dyn(optional.of(self).?acquireTime.value())) ` +
		`!= timestamp(dyn(oldSelf.?acquireTime.value())) ? !optional.of(self).?fencingToken.hasValue() : ` +
		`self.owner == oldSelf.value().owner && (optional.of(self).?fencingToken.hasValue() || ` +
		`!oldSelf.?fencingToken.hasValue()) && (!optional.of(self).?holderUID.hasValue() || ` +
		`oldSelf.?holderUID.hasValue() && self.holderUID == oldSelf.value().holderUID))`: true,
}

var _ = Describe("The schema of a Lock", func() {
	It("takes nothing away", func() {
		before, now := schemaOf(earlier), schemaOf(current)
		Expect(before.Properties).NotTo(BeEmpty())
		for _, difference := range incompatibilities("", before, now) {
			Expect(changedOnPurpose).To(HaveKey(difference))
		}
	})

	DescribeTable("is found to take something away", func(narrow func(spec *schema), difference string) {
		now := schemaOf(current)
		changed := *now.DeepCopy()
		spec := changed.Properties["spec"]
		narrow(&spec)
		changed.Properties["spec"] = spec
		Expect(incompatibilities("", now, changed)).To(ConsistOf(difference))
	},
		Entry("by a required field", func(spec *schema) { spec.Required = append(spec.Required, "reason") }, ".spec requires reason"),
		Entry("by a field less", func(spec *schema) { delete(spec.Properties, "ttl") }, ".spec.ttl is gone"),
		Entry("by another type", change("reason", func(reason *schema) { reason.Type = "integer" }), ".spec.reason was of type string and is of type integer"),
		Entry("by a shorter value", change("reason", func(reason *schema) { reason.MaxLength = new(int64(1)) }), ".spec.reason has a lower greatest length"),
		Entry("by a value less", change("scope", func(scope *schema) { scope.Enum = scope.Enum[:1] }), `.spec.scope may not be "Function"`),
		Entry("by a pattern", change("reason", func(reason *schema) { reason.Pattern = "^a" }), ".spec.reason has the new pattern ^a"),
		Entry("by a format", change("reason", func(reason *schema) { reason.Format = "date" }), ".spec.reason has the new format date"),
		Entry("by a higher minimum", change("fencingToken", func(token *schema) { token.Minimum = new(2.0) }), ".spec.fencingToken must be higher"),
		Entry("by an excluded minimum", change("fencingToken", func(token *schema) { token.ExclusiveMinimum = true }), ".spec.fencingToken must be higher"),
		Entry("by a maximum", change("fencingToken", func(token *schema) { token.Maximum = new(9.0) }), ".spec.fencingToken must be lower"),
		Entry("by a rule of a field", change("reason", func(reason *schema) {
			reason.XValidations = append(reason.XValidations, apiextensionsv1.ValidationRule{Rule: "self != ''"})
		}), ".spec.reason has the new rule self != ''"),
		Entry("by a rule that holds for creations as well", func(spec *schema) {
			spec.XValidations = append(spec.XValidations, apiextensionsv1.ValidationRule{Rule: "self != oldSelf.orValue(self)", OptionalOldSelf: new(true)})
		}, ".spec has the new rule (also without oldSelf) self != oldSelf.orValue(self)"),
		Entry("by another default", change("scope", func(scope *schema) { scope.Default = &apiextensionsv1.JSON{Raw: []byte(`"Function"`)} }),
			`.spec.scope had the default "Global" and has "Function"`),
		Entry("by a default less", change("scope", func(scope *schema) { scope.Default = nil }), `.spec.scope had the default "Global" and has none`),
		Entry("by a keyword that is not compared otherwise", change("reason", func(reason *schema) { reason.UniqueItems = true }), ".spec.reason differs in another way"),
	)
})

// change returns a change of a field of spec.
func change(name string, how func(field *schema)) func(spec *schema) {
	return func(spec *schema) {
		field := spec.Properties[name]
		how(&field)
		spec.Properties[name] = field
	}
}

// samples returns the sample Locks of a release, as manifests by their files.
func samples(of *release) map[string][]string {
	GinkgoHelper()
	found := map[string][]string{}
	folder, err := os.OpenRoot(filepath.Join(of.root, "config", "samples"))
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = folder.Close() }()
	Expect(fs.WalkDir(folder.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		content, err := folder.ReadFile(path)
		if err != nil {
			return err
		}
		for document := range strings.SplitSeq(inTheFuture(string(content)), "\n---\n") {
			if !strings.Contains(document, "kind: Lock\n") || strings.Contains(document, "guards:") { // config/default has no guards.
				continue
			}
			found[path] = append(found[path], document)
		}
		return nil
	})).To(Succeed())
	Expect(found).NotTo(BeEmpty())
	return found
}

// inTheFuture replaces the end of the samples of a freeze, which is refused once it is past.
func inTheFuture(manifests string) string {
	return strings.ReplaceAll(manifests, "2027-01-04T06:00:00Z", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

// admitSamples lets the API server admit the sample Locks of a release, without storing them.
func admitSamples(ctx context.Context, of *release) {
	GinkgoHelper()
	createSamples(ctx, of, environment.Namespace(ctx, "samples-"), "--dry-run=server")
}

// storeSamples creates the sample Locks of a release, and returns their namespace.
func storeSamples(ctx context.Context, of *release) string {
	GinkgoHelper()
	namespace := environment.Namespace(ctx, "stored-")
	createSamples(ctx, of, namespace)
	return namespace
}

func createSamples(ctx context.Context, of *release, namespace string, flags ...string) {
	GinkgoHelper()
	for path, documents := range samples(of) {
		for _, document := range documents {
			_, err := environment.Admin.Kubectl.Run(ctx, document, append([]string{"create", "-n", namespace, "-f", "-"}, flags...)...)
			Expect(err).NotTo(HaveOccurred(), path)
		}
	}
}

// changeSamples changes the Locks of the namespace, which an earlier release has stored, in the name of their holder.
func changeSamples(ctx context.Context, namespace, reason string) {
	GinkgoHelper()
	stored := &unstructured.UnstructuredList{}
	stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("LockList"))
	Expect(environment.Admin.Client.List(ctx, stored, client.InNamespace(namespace))).To(Succeed())
	Expect(stored.Items).NotTo(BeEmpty())
	for index := range stored.Items {
		changed := &stored.Items[index]
		Expect(unstructured.SetNestedField(changed.Object, reason, "spec", "reason")).To(Succeed())
		Expect(environment.Admin.Client.Update(ctx, changed)).To(Succeed(), changed.GetName())
	}
}

func schemaOf(of *release) schema {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(of.root, "config", "crd", "bases", "forrst.dev_locks.yaml"))
	Expect(err).NotTo(HaveOccurred())
	var definition apiextensionsv1.CustomResourceDefinition
	Expect(yaml.UnmarshalStrict(content, &definition)).To(Succeed())
	Expect(definition.Spec.Versions).To(HaveLen(1))
	return *definition.Spec.Versions[0].Schema.OpenAPIV3Schema
}
