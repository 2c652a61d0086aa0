package doctor

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
)

// judgeOperator looks at the processes of the operator.
func judgeOperator(facts *Facts) []Finding {
	return slices.Concat(judgeDeployments(facts), judgeIssued(facts))
}

func judgeDeployments(facts *Facts) []Finding {
	const check = "operator"
	deployments := facts.Deployments.Value
	switch {
	case apierrors.IsForbidden(facts.Deployments.Err):
		return []Finding{skipped(check, "you may not read Deployments in namespace %s", facts.OperatorNamespace)}
	case facts.Deployments.Err != nil:
		return []Finding{failed(check, "its Deployments could not be read: "+facts.Deployments.Err.Error(), "run this again")}
	case len(deployments) == 0:
		return []Finding{skipped(check, "there is no Deployment of it in namespace %s; it runs elsewhere", facts.OperatorNamespace)}
	}
	var findings []Finding
	images := map[string]bool{}
	for _, deployment := range deployments {
		findings = append(findings, judgeDeployment(&deployment))
		for _, container := range deployment.Spec.Template.Spec.Containers {
			images[container.Image] = true
		}
	}
	if names := sortedKeys(images); len(names) > 1 {
		findings = append(findings, warning(check, "its Deployments run different images: "+strings.Join(names, ", "),
			"finish the upgrade"))
	}
	return findings
}

func judgeDeployment(deployment *appsv1.Deployment) Finding {
	wanted, ready := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status.ReadyReplicas
	text := fmt.Sprintf("%d of %d replicas are ready", ready, wanted)
	do := fmt.Sprintf("see why: kubectl describe deployment %s -n %s", deployment.Name, deployment.Namespace)
	switch check := deployment.Name; {
	case ready == 0:
		return failed(check, text, do)
	case ready < wanted:
		return warning(check, text, do)
	default:
		return ok(check, "%s%s", text, imageOf(deployment))
	}
}

func imageOf(deployment *appsv1.Deployment) string {
	if containers := deployment.Spec.Template.Spec.Containers; len(containers) > 0 {
		return ", image " + containers[0].Image
	}
	return ""
}

// judgeIssued looks at the certificates that cert-manager issues for webhook and façade.
func judgeIssued(facts *Facts) []Finding {
	const check = "issued certificates"
	switch err := facts.Certificates.Err; {
	case apimeta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return []Finding{skipped(check, "there is no cert-manager")}
	case err != nil:
		return []Finding{skipped(check, "you may not read Certificates in namespace %s", facts.OperatorNamespace)}
	}
	var findings []Finding
	for _, certificate := range facts.Certificates.Value {
		do := fmt.Sprintf("see why: kubectl describe certificate %s -n %s", certificate.Name, facts.OperatorNamespace)
		switch left := certificate.NotAfter.Sub(facts.Server); {
		case certificate.NotAfter.IsZero(), left <= 0:
			findings = append(findings, failed(check, fmt.Sprintf("%s is not valid: %s", certificate.Name, certificate.Message), do))
		case !certificate.IsReady:
			findings = append(findings, warning(check, fmt.Sprintf("%s is valid until %s, and is not renewed: %s", certificate.Name, day(certificate.NotAfter), certificate.Message), do))
		default:
			findings = append(findings, ok(check, "%s is valid until %s", certificate.Name, day(certificate.NotAfter)))
		}
	}
	return findings
}

func sortedKeys(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for key := range set {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
