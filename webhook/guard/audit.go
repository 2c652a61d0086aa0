package guard

import (
	"errors"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/rules"
)

// record records a change of a guarded object: one record for each lock under which it was admitted,
// or one for the refusal. A dry run leaves none.
func (a *Admission) record(request admission.Request, v *verdict) {
	if a.Audit == nil || request.DryRun != nil && *request.DryRun {
		return
	}
	now := v1alpha1.NewTimestamp(a.Clock.Now())
	object := audit.Object{
		Group: v.target.Resource.Group, Resource: v.target.Resource.Resource, Subresource: request.SubResource, Name: audit.Bounded(v.target.Name),
	}
	operation := strings.ToLower(string(request.Operation))
	if v.err == nil {
		for _, lock := range v.held {
			record := audit.Of(audit.WriteAdmitted, audit.Admission, lock)
			record.Time, record.Actor, record.Operation, record.Object = now, request.UserInfo.Username, operation, &object
			a.Audit.Record(record)
		}
		return
	}
	lock := v.refusing
	if lock == nil {
		lock = &v1alpha1.Lock{}
		lock.Namespace = request.Namespace
	}
	record := audit.Of(audit.WriteRefused, audit.Admission, lock)
	record.Time, record.Actor, record.Operation, record.Object = now, request.UserInfo.Username, operation, &object
	record.Reason, record.Message = audit.Failed, audit.Bounded(v.err.Error())
	if _, isGuarded := errors.AsType[*rules.GuardedError](v.err); isGuarded {
		record.Reason = audit.Guarded
	}
	a.Audit.Record(record)
}
