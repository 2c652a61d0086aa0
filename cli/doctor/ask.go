package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// defaultNamespace is where config/default installs the operator.
const defaultNamespace = "forrst-system"

// verbs are those that users have on locks.
var verbs = []string{"get", "list", "watch", "create", "update", "delete", "force-release"}

// errMayNotCreate means that the dry run was not tried.
var errMayNotCreate = errors.New("the caller may not create locks")

// Cluster is what [Ask] asks.
type Cluster struct {
	// Client reads with the identity of the caller. Its writes are dry runs and reviews.
	Client client.Client
	// Kubernetes returns the version of the API server.
	Kubernetes func() (*version.Info, error)
	// Now returns the clock of this machine, and that of the API server as its answers have told it.
	Now func() (local, server time.Time)
	// Namespace is that of the locks which the caller is about.
	Namespace string
	// Program is the version of this program.
	Program string
}

// Ask gathers the facts. It changes nothing: locks are created in dry runs.
func (c Cluster) Ask(ctx context.Context) *Facts {
	facts := &Facts{Namespace: c.Namespace, Program: c.Program, OperatorNamespace: defaultNamespace}
	info, err := c.Kubernetes()
	if err != nil {
		facts.Kubernetes.Err = err
		return facts
	}
	facts.Kubernetes.Value = *info
	facts.Self = c.self(ctx)
	facts.Definition = c.definition(ctx)
	_, facts.Served = c.Client.RESTMapper().RESTMapping(v1alpha1.GroupVersion.WithKind("Lock").GroupKind(), v1alpha1.GroupVersion.Version)
	facts.Rights = c.rights(ctx)
	c.askAboutWebhooks(ctx, facts)
	c.try(ctx, facts)

	var deployments appsv1.DeploymentList
	facts.Deployments.Err = c.Client.List(ctx, &deployments, client.InNamespace(facts.OperatorNamespace), client.MatchingLabels{"app.kubernetes.io/name": "lock-operator"})
	facts.Deployments.Value = deployments.Items
	facts.Certificates = c.certificates(ctx, facts.OperatorNamespace)
	var namespace corev1.Namespace
	facts.Labels.Err = c.Client.Get(ctx, client.ObjectKey{Name: c.Namespace}, &namespace)
	facts.Labels.Value = namespace.Labels
	facts.Guarded = c.tryGuarded(ctx, facts)
	facts.Local, facts.Server = c.Now()
	return facts
}

func (c Cluster) self(ctx context.Context) Answer[authenticationv1.UserInfo] {
	var review authenticationv1.SelfSubjectReview
	err := c.Client.Create(ctx, &review)
	return Answer[authenticationv1.UserInfo]{Value: review.Status.UserInfo, Err: err}
}

func (c Cluster) definition(ctx context.Context) Answer[Definition] {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := c.Client.Get(ctx, client.ObjectKey{Name: "locks." + v1alpha1.GroupVersion.Group}, object); err != nil {
		return Answer[Definition]{Err: err}
	}
	var definition Definition
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	definition.IsEstablished, _ = conditionOf(conditions, "Established")
	versions, _, _ := unstructured.NestedSlice(object.Object, "spec", "versions")
	for _, each := range versions {
		served, isMap := each.(map[string]any)
		if !isMap || served["served"] != true {
			continue
		}
		name, _, _ := unstructured.NestedString(served, "name")
		definition.Versions = append(definition.Versions, name)
		fields, _, _ := unstructured.NestedMap(served, "schema", "openAPIV3Schema", "properties", "spec", "properties")
		for field := range fields {
			definition.Fields = append(definition.Fields, field)
		}
	}
	return Answer[Definition]{Value: definition}
}

func (c Cluster) rights(ctx context.Context) Answer[[]Right] {
	var rights []Right
	for _, verb := range verbs {
		review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: c.Namespace, Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: "locks",
			},
		}}
		if err := c.Client.Create(ctx, &review); err != nil {
			return Answer[[]Right]{Err: err}
		}
		rights = append(rights, Right{Verb: verb, IsAllowed: review.Status.Allowed})
	}
	return Answer[[]Right]{Value: rights}
}

func (c Cluster) askAboutWebhooks(ctx context.Context, facts *Facts) {
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	facts.Mutating.Err = c.Client.List(ctx, &mutating)
	facts.Mutating.Value = mutating.Items
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	facts.Validating.Err = c.Client.List(ctx, &validating)
	facts.Validating.Value = validating.Items
	for _, webhook := range lockWebhooks(mutating.Items) {
		for _, user := range exemptedUsers(webhook) {
			if namespace, _, isAccount := accountOf(user); isAccount {
				facts.OperatorNamespace = namespace
			}
			exists, err := c.accountExists(ctx, user)
			switch {
			case err != nil:
				facts.Missing.Err = err
			case !exists:
				facts.Missing.Value = append(facts.Missing.Value, user)
			}
		}
	}
}

// accountExists reports whether a user that is a service account exists. Other users do: they cannot be
// made in the cluster.
func (c Cluster) accountExists(ctx context.Context, user string) (bool, error) {
	namespace, name, isAccount := accountOf(user)
	if !isAccount {
		return true, nil
	}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.ServiceAccount{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return true, err
}

// accountOf returns which service account a user is, if it is one.
func accountOf(user string) (namespace, name string, isAccount bool) {
	account, hasPrefix := strings.CutPrefix(user, "system:serviceaccount:")
	namespace, name, isNamed := strings.Cut(account, ":")
	return namespace, name, hasPrefix && isNamed
}

// try creates locks in dry runs: one that every installation grants, and one with a forged holder.
func (c Cluster) try(ctx context.Context, facts *Facts) {
	mayCreate := facts.Rights.Err != nil
	for _, right := range facts.Rights.Value {
		mayCreate = mayCreate || right.Verb == "create" && right.IsAllowed
	}
	if !mayCreate {
		facts.Admitted.Err = errMayNotCreate
		return
	}
	if facts.Admitted = c.tryLock(ctx, ""); facts.Admitted.Err == nil {
		facts.Forged = c.tryLock(ctx, "forged-by-kubectl-lock-doctor")
	}
}

func (c Cluster) tryLock(ctx context.Context, holder string) Answer[*v1alpha1.Lock] {
	key := "kubectl-lock:doctor:" + lock.NewOwner()
	tried := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()},
		Spec:       v1alpha1.LockSpec{Key: key, Holder: holder, TTL: &v1alpha1.Duration{Duration: time.Second}, Reason: "dry run of kubectl lock doctor"},
	}
	err := c.Client.Create(ctx, tried, client.DryRunAll)
	return Answer[*v1alpha1.Lock]{Value: tried, Err: err}
}

// tryGuarded returns what becomes of a new object that the webhook of guards is asked about.
func (c Cluster) tryGuarded(ctx context.Context, facts *Facts) error {
	if len(guardWebhooks(facts.Validating.Value)) == 0 || facts.Labels.Value[v1alpha1.GuardsLabel] != v1alpha1.GuardsEnabled {
		return nil
	}
	tried := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "kubectl-lock-doctor-" + lock.NewOwner()}}
	return c.Client.Create(ctx, tried, client.DryRunAll)
}

func (c Cluster) certificates(ctx context.Context, namespace string) Answer[[]Certificate] {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "CertificateList"})
	if err := c.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return Answer[[]Certificate]{Err: err}
	}
	var certificates []Certificate
	for _, item := range list.Items {
		conditions, _, _ := unstructured.NestedSlice(item.Object, "status", "conditions")
		isReady, message := conditionOf(conditions, "Ready")
		end, _, _ := unstructured.NestedString(item.Object, "status", "notAfter")
		notAfter, err := time.Parse(time.RFC3339, end)
		if err != nil && message == "" {
			message = "it was not issued yet"
		}
		certificates = append(certificates, Certificate{Name: item.GetName(), IsReady: isReady, Message: message, NotAfter: notAfter})
	}
	return Answer[[]Certificate]{Value: certificates}
}

// conditionOf returns whether the condition of the type is true, and its message.
func conditionOf(conditions []any, conditionType string) (isTrue bool, message string) {
	for _, each := range conditions {
		condition, isMap := each.(map[string]any)
		if isMap && condition["type"] == conditionType {
			return condition["status"] == "True", fmt.Sprint(condition["message"])
		}
	}
	return false, ""
}
