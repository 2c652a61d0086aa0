package webhook

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// DeletionAuditPath is where the webhook server hears of deletions that are not asked for
// at [LockPath].
const DeletionAuditPath = "/audit-forrst-dev-v1alpha1-lock"

// SetupDeletionAudit has the deletions recorded that are kept out of admission: those by
// the garbage collector and the namespace controller, which must not wait for a webhook
// that is away. They are all allowed here, and config/webhook/deletion_audit.yaml has the
// API server go on without an answer.
func (a *Audit) SetupDeletionAudit(manager ctrl.Manager) {
	allow := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") })
	manager.GetWebhookServer().Register(DeletionAuditPath, &admission.Webhook{Handler: a.of(allow)})
}
