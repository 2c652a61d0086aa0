package webhook

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// DeletionAuditPath is where the API server reports the deletions that are exempt from
// admission at [LockPath].
const DeletionAuditPath = "/audit-forrst-dev-v1alpha1-lock"

// SetupDeletionAudit records the deletions that are exempt from admission: those by the
// garbage collector and the namespace controller, which must not depend on the webhook.
// The handler allows all of them, and by config/webhook/deletion_audit.yaml the API server
// ignores a missing answer.
func (a *Audit) SetupDeletionAudit(manager ctrl.Manager) {
	handler := func(ctx context.Context, request admission.Request) admission.Response {
		old, err := decode(request.OldObject)
		if err != nil {
			a.unread(request)
			logf.FromContext(ctx).Error(err, "Could not decode a deleted Lock for the audit",
				"namespace", request.Namespace, "lock", request.Name, "user", request.UserInfo.Username)
			return admission.Allowed("")
		}
		a.admitted(deletionRecords(request, old, a.clock.Now()))
		return admission.Allowed("")
	}
	manager.GetWebhookServer().Register(DeletionAuditPath, &admission.Webhook{Handler: admission.HandlerFunc(handler)})
}
