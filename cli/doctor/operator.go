package doctor

import (
	"cmp"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// certificate is what counts of a Certificate of cert-manager.
type certificate struct {
	Status struct {
		NotAfter   *metav1.Time       `json:"notAfter"`
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// judgeCertificates looks at the certificates that cert-manager issues for webhook and façade.
func (e *examination) judgeCertificates(ctx context.Context) {
	const check = "issued certificates"
	var found unstructured.UnstructuredList
	found.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "CertificateList"})
	switch err := e.cluster.List(ctx, &found, client.InNamespace(e.operatorNamespace)); {
	case apimeta.IsNoMatchError(err), apierrors.IsNotFound(err):
		e.add(Skip, check, "", "there is no cert-manager")
	case err != nil:
		e.skipUnread(check, "Certificates in namespace "+e.operatorNamespace, err)
	}
	for _, item := range found.Items {
		var issued certificate
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &issued)
		end, ready := issued.Status.NotAfter, ptr.Deref(apimeta.FindStatusCondition(issued.Status.Conditions, "Ready"), metav1.Condition{})
		do := "see why: " + e.Kubectl("describe", "certificate", item.GetName(), "-n", e.operatorNamespace)
		switch {
		case err != nil || end == nil || !end.After(e.Now()):
			e.add(Fail, check, do, "%s is not valid: %s", item.GetName(), cmp.Or(ready.Message, "it was not issued yet"))
		case ready.Status != metav1.ConditionTrue:
			e.add(Warn, check, do, "%s is valid until %s, and is not renewed: %s", item.GetName(), day(end.Time), ready.Message)
		default:
			e.add(OK, check, "", "%s is valid until %s", item.GetName(), day(end.Time))
		}
	}
}
