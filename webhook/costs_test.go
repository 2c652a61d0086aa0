package webhook_test

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/webhook"
)

// If the API server gave up first, the record of the deletion could not tell what its lock was.
func TestADeletionWaitsForHalfOfItsTimeout(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "config", "webhook", "deletion_audit.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := yaml.Unmarshal(text, &configuration); err != nil {
		t.Fatal(err)
	}
	for _, each := range configuration.Webhooks {
		timeout := time.Duration(*each.TimeoutSeconds) * time.Second
		// Zero is the default of the server.
		wait := cmp.Or(webhook.ReviewCosts()[*each.ClientConfig.Service.Path].MaxWait, 2*time.Second)
		if wait > timeout/2 {
			t.Errorf("a review waits for %s of %s", wait, timeout)
		}
	}
	if len(configuration.Webhooks) == 0 {
		t.Error("no webhook")
	}
}
