// Package doctor finds what is wrong with an installation of lock-operator or with a façade. It asks with the rights of the
// caller, and changes nothing. What the caller may not read is skipped, and said to be.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
)

const (
	// toleratedDifference is how far clocks may differ before what people read and type is wrong. The difference is known
	// to about a second.
	toleratedDifference = 3 * time.Second
	// versionTimeout bounds the first request: a server that does not answer is a finding.
	versionTimeout = 10 * time.Second
	// defaultNamespace is where config/default installs the operator.
	defaultNamespace = "forrst-system"
)

var (
	// oldestKubernetes is the oldest version that lock-operator supports (docs/design.md, section 19).
	oldestKubernetes = utilversion.MustParseGeneric("1.34")
	// roles are the cluster roles that bring verbs, by what they are for.
	roles = []struct {
		name, purpose string
		verbs         []string
	}{
		{"lock-operator-view", "see locks", []string{"get", "list", "watch"}},
		{"lock-operator-edit", "take and release locks", []string{"create", "update", "delete"}},
	}
)

// examination looks at one cluster. Later checks use what earlier ones have read.
type examination struct {
	*session.Session
	Report
	cluster client.Client
	// user is empty if the API server does not say who the caller is.
	user string
	// labels are those of the namespace.
	labels    map[string]string
	labelsErr error
	// webhooks are those of all configurations of the cluster, by their names; the mutating ones have the form of validating ones.
	webhooks    map[string][]admissionregistrationv1.ValidatingWebhook
	webhooksErr error
	// inForce are the names of the operator's policies whose refusals a binding puts into effect.
	inForce     []string
	policiesErr error
	// refusal is why a new lock was not admitted.
	refusal           error
	operatorNamespace string
}

// Examine looks at the façade of a session, or at its API server and the installation there. Program is the version of this
// program.
func Examine(ctx context.Context, s *session.Session, program string) (Report, error) {
	if s.UsesFacade() {
		return examineFacade(ctx, s)
	}
	config, err := s.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = versionTimeout
	versions, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cluster, err := s.Cluster()
	if err != nil {
		return nil, err
	}
	e := &examination{Session: s, cluster: cluster, operatorNamespace: defaultNamespace}
	if e.judgeServer(ctx, versions.RESTClient(), program) {
		e.judgeInstallation(ctx)
	}
	return e.Report, nil
}

func (e *examination) judgeServer(ctx context.Context, versions rest.Interface, program string) (isAnswered bool) {
	const check = "api server"
	var info struct{ GitVersion string }
	answer := versions.Get().AbsPath("/version").Do(ctx) // ServerVersion would lose why the API server refuses the request.
	err := answer.Error()
	if err == nil {
		content, _ := answer.Raw()
		err = json.Unmarshal(content, &info)
	}
	if err != nil {
		what, do := failure.Contact(err)
		e.add(Fail, check, do+"; compare with "+e.Kubectl("get", "namespaces"), "%s: %v", what, err)
		return false
	}
	if found, err := utilversion.ParseGeneric(info.GitVersion); err == nil && found.LessThan(oldestKubernetes) {
		e.add(Fail, check, fmt.Sprintf("upgrade the cluster to %s or later", oldestKubernetes), "Kubernetes is %s, and lock-operator needs %s", info.GitVersion, oldestKubernetes)
	} else {
		e.add(OK, check, "", "Kubernetes %s answers; this is kubectl-lock %s", info.GitVersion, program)
	}
	return true
}

func (e *examination) judgeInstallation(ctx context.Context) {
	e.judgeClock(e.Clock.Now(), e.Now())
	if !e.judgeType(ctx) {
		return // All others follow from that.
	}
	user, _ := e.User(ctx)
	e.user = user.Name
	var namespace corev1.Namespace
	e.labelsErr = e.cluster.Get(ctx, client.ObjectKey{Name: e.Namespace()}, &namespace)
	e.labels = namespace.Labels
	isThere := !apierrors.IsNotFound(e.labelsErr)
	if isThere {
		e.judgeRights(ctx)
	} else {
		e.add(Fail, "namespace", "name one that exists with -n: "+e.Kubectl("get", "namespaces"),
			"namespace %s does not exist, so rights and admission were not tried there", e.Namespace())
	}
	e.judgeWebhooks(ctx)
	e.judgePolicies(ctx)
	if isThere {
		e.judgeDryRuns(ctx)
	}
	e.judgeDeployments(ctx)
	if isThere {
		e.judgeGuards(ctx)
	}
}

func (r *Report) judgeClock(local, server time.Time) {
	const check = "clock"
	difference, direction := local.Sub(server), "ahead of"
	if difference < 0 {
		direction = "behind"
	}
	if difference.Abs() <= toleratedDifference {
		r.add(OK, check, "", "this machine and the service agree on the time")
		return
	}
	r.add(Warn, check, "set the clock of this machine, or have it synchronised; until then give a length of time with --until, and no time of day",
		"the clock of this machine is %s %s that of the service; locks end by the latter", difference.Abs().Round(time.Second), direction)
}

// judgeType reports whether the cluster serves Locks, as far as the caller may know.
func (e *examination) judgeType(ctx context.Context) (isServed bool) {
	const check, name = "type Lock", "locks.forrst.dev"
	locksKind := v1alpha1.GroupVersion.WithKind("Lock")
	var definition apiextensionsv1.CustomResourceDefinition
	err := e.cluster.Get(ctx, client.ObjectKey{Name: name}, &definition)
	// How the API server shows the type to all callers, for those who may not read definitions.
	_, unserved := e.cluster.RESTMapper().RESTMapping(locksKind.GroupKind(), locksKind.Version)
	switch {
	case apierrors.IsNotFound(err):
		e.add(Fail, check, "install it", "lock-operator is not installed: the cluster does not know Locks")
	case err != nil && apimeta.IsNoMatchError(unserved):
		e.add(Fail, check, "install it", "lock-operator is not installed, or not wholly: the cluster does not serve Locks: %v", unserved)
	case apierrors.IsForbidden(err) && unserved == nil:
		e.add(OK, check, "", "the cluster serves %s; you may not read its definition", v1alpha1.GroupVersion)
		return true
	case err != nil:
		e.skipUnread(check, "its definition", err)
		return true
	case definition.DeletionTimestamp != nil:
		e.add(Fail, check, "install lock-operator again when the definition is gone; see what keeps it: "+e.Kubectl("get", name, "-A"),
			"its definition is being deleted, and all Locks with it: no lock can be taken")
	case unserved != nil:
		e.add(Fail, check, "see why: "+e.Kubectl("describe", "crd", name), "its definition is there, and the cluster does not serve Locks: %v", unserved)
	default:
		if missing := missingField(&definition); missing != "" {
			e.add(Fail, check, "apply config/crd of lock-operator: "+e.Kubectl("apply", "-k", "config/crd"), "its definition is of an earlier version: it lacks spec.%s", missing)
			return true
		}
		e.add(OK, check, "", "the cluster serves %s", v1alpha1.GroupVersion)
		return true
	}
	return false
}

// missingField returns a field that the spec of a Lock has in this version and lacks in the definition, or "".
func missingField(definition *apiextensionsv1.CustomResourceDefinition) string {
	var defined map[string]apiextensionsv1.JSONSchemaProps
	if schema, err := apihelpers.GetSchemaForVersion(definition, v1alpha1.GroupVersion.Version); err == nil && schema != nil && schema.OpenAPIV3Schema != nil {
		defined = schema.OpenAPIV3Schema.Properties["spec"].Properties
	}
	for _, name := range specFields() {
		if _, has := defined[name]; !has {
			return name
		}
	}
	return ""
}

// specFields are the fields of the spec of a Lock.
func specFields() (names []string) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.LockSpec]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

func (e *examination) judgeRights(ctx context.Context) {
	const check = "your rights"
	user, hasAll := cmp.Or(e.user, "you"), true
	for _, role := range roles {
		missing, err := locks.MissingVerbs(ctx, e.cluster, e.Namespace(), "", role.verbs...)
		if err != nil {
			e.add(Skip, check, "", "they could not be asked for: %v", err)
			return
		}
		if len(missing) > 0 {
			hasAll = false
			e.add(Warn, check, fmt.Sprintf("to %s, have the cluster role %s bound in that namespace", role.purpose, role.name),
				"%s may not %s locks in namespace %s", user, strings.Join(missing, ", "), e.Namespace())
		}
	}
	if !hasAll {
		return
	}
	force := "and end those of other holders"
	if missing, err := locks.MissingVerbs(ctx, e.cluster, e.Namespace(), "", "force-release"); err != nil || len(missing) > 0 {
		force = "and not end those of other holders"
	}
	e.add(OK, check, "", "%s may see, take and release locks in namespace %s, %s", user, e.Namespace(), force)
}

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
	images := sets.New[string]()
	for _, deployment := range deployments.Items {
		image := deployment.Spec.Template.Spec.Containers[0].Image
		images.Insert(image)
		wanted, ready := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status.ReadyReplicas
		text := fmt.Sprintf("%d of %d replicas are ready", ready, wanted)
		do := "see why: " + e.Kubectl("describe", "deployment", deployment.Name, "-n", deployment.Namespace)
		switch {
		case ready == 0:
			e.add(Fail, deployment.Name, do, "%s", text)
		case ready < wanted:
			e.add(Warn, deployment.Name, do, "%s", text)
		default:
			e.add(OK, deployment.Name, "", "%s, image %s", text, image)
		}
	}
	if len(images) > 1 {
		e.add(Warn, check, "finish the upgrade", "its Deployments run different images: %s", strings.Join(sets.List(images), ", "))
	}
}
