package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// judgeDeployments looks at the processes of the operator.
func (e *examination) judgeDeployments(ctx context.Context) {
	const check = "operator"
	var deployments appsv1.DeploymentList
	err := e.cluster.List(ctx, &deployments, client.InNamespace(e.operatorNamespace), client.MatchingLabels{nameLabel: operatorName})
	switch {
	case err != nil:
		e.skipUnread(check, "Deployments in namespace "+e.operatorNamespace, err)
	case len(deployments.Items) == 0:
		e.add(Skip, check, "", "there is no Deployment of it in namespace %s; it runs elsewhere", e.operatorNamespace)
	}
	images := sets.Set[string]{}
	for _, deployment := range deployments.Items {
		containers := deployment.Spec.Template.Spec.Containers
		for _, container := range containers {
			images.Insert(container.Image)
		}
		wanted, ready := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status.ReadyReplicas
		text := fmt.Sprintf("%d of %d replicas are ready", ready, wanted)
		do := "see why: " + e.Kubectl("describe", "deployment", deployment.Name, "-n", deployment.Namespace)
		switch {
		case ready == 0:
			e.add(Fail, deployment.Name, do, "%s", text)
		case ready < wanted:
			e.add(Warn, deployment.Name, do, "%s", text)
		default:
			e.add(OK, deployment.Name, "", "%s, image %s", text, containers[0].Image)
		}
	}
	if len(images) > 1 {
		e.add(Warn, check, "finish the upgrade", "its Deployments run different images: %s", strings.Join(sets.List(images), ", "))
	}
}

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
