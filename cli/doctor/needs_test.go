package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// manifests returns the documents of the files of the folders of config/.
func manifests(t *testing.T, folders ...string) (documents [][]byte) {
	t.Helper()
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join("..", "..", "config", folder, "*.yaml"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", folder, err)
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			documents = append(documents, bytes.Split(content, []byte("\n---\n"))...)
		}
	}
	return documents
}

func TestItNeedsTheWebhooksOfTheInstallation(t *testing.T) {
	missing := map[string]need{guardWebhook: {}}
	for _, need := range needs {
		missing[need.name] = need
	}
	for _, document := range manifests(t, "webhook", "guards") {
		// The mutating configuration has the same fields.
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration
		if err := yaml.Unmarshal(document, &configuration); err != nil || !strings.HasSuffix(configuration.Kind, "WebhookConfiguration") {
			continue // Patches are lists.
		}
		for _, webhook := range configuration.Webhooks {
			if len(webhook.Rules) == 0 {
				continue // A patch.
			}
			want, isKnown := missing[webhook.Name]
			delete(missing, webhook.Name)
			switch rule := webhook.Rules[0]; {
			case !isKnown:
				t.Errorf("it does not know %s", webhook.Name)
			case webhook.Name == guardWebhook:
			case len(webhook.Rules) != 1 || !slices.Equal(rule.Resources, []string{want.resource}) || !slices.Equal(rule.Operations, want.operations) ||
				*webhook.FailurePolicy != want.failurePolicy:
				t.Errorf("it needs another %s: %+v", webhook.Name, want)
			}
		}
	}
	for name := range missing {
		t.Errorf("no installation has %s", name)
	}
}

func TestItNeedsThePoliciesOfTheInstallation(t *testing.T) {
	known := map[string][]policy{"config/lock-policies": {{suffix: "-durations"}, {suffix: "-keys"}}} // These limit what a namespace may lock.
	for _, policy := range append(slices.Clone(policies), fence) {
		known[policy.folder] = append(known[policy.folder], policy)
	}
	for folder, want := range known {
		var found []string
		for _, document := range manifests(t, strings.TrimPrefix(folder, "config/")) {
			var policy admissionregistrationv1.ValidatingAdmissionPolicy
			if err := yaml.Unmarshal(document, &policy); err == nil && policy.Kind == "ValidatingAdmissionPolicy" {
				found = append(found, policy.Name)
				if policy.Labels[nameLabel] != operatorName {
					t.Errorf("%s lacks the label %s=%s", policy.Name, nameLabel, operatorName)
				}
			}
		}
		var wanted []string
		for _, policy := range want {
			wanted = append(wanted, operatorName+policy.suffix)
		}
		slices.Sort(wanted)
		slices.Sort(found)
		if !slices.Equal(found, wanted) {
			t.Errorf("%s has the policies %q, and it knows %q", folder, found, wanted)
		}
	}
}
