package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
)

// Answer is what was asked for, or why it is not known.
type Answer[T any] struct {
	Value T
	Err   error
}

// Facts are what [Ask] has found out about an installation.
type Facts struct {
	// Namespace is the namespace of the caller's locks. Labels are its labels.
	Namespace string
	Labels    Answer[map[string]string]
	// Local and Server are the clocks of this machine and of the API server, read at the same time.
	Local, Server time.Time
	// Program is the version of this program.
	Program string
	// Kubernetes is the version of the API server.
	Kubernetes Answer[version.Info]
	// Self is who the caller is.
	Self Answer[authenticationv1.UserInfo]
	// Definition is the definition of the type Lock. Served is how the API server shows the type to all
	// callers, for those who may not read definitions.
	Definition Answer[*apiextensionsv1.CustomResourceDefinition]
	Served     error
	// Webhooks are those of all webhook configurations of the cluster; the mutating ones have the form of validating ones.
	Webhooks Answer[[]admissionregistrationv1.ValidatingWebhook]
	// Policies are the ValidatingAdmissionPolicies of lock-operator.
	Policies Answer[Policies]
	// Missing are the users whom the webhook of Locks exempts, and whose service accounts do not
	// exist. The error says that this is not known.
	Missing Answer[[]string]
	// Rights are the verbs that the caller may use on locks in the namespace.
	Rights Answer[[]string]
	// Admitted is the result of a dry run of a new lock. Forged is the result of a second one, with a holder of its own
	// choice, if the first was admitted.
	Admitted, Forged Answer[*v1alpha1.Lock]
	// Guarded is the error of a dry run of a ConfigMap in a namespace that has opted in to guards. Nil if it was
	// admitted, or not tried.
	Guarded error
	// OperatorNamespace is where the operator runs, as the webhook configuration says.
	OperatorNamespace string
	// Deployments are the Deployments of the operator, and Certificates the Certificates of cert-manager beside them.
	Deployments  Answer[[]appsv1.Deployment]
	Certificates Answer[[]unstructured.Unstructured]
	// Kubectl returns a command of kubectl for the user to type, with the flags of the session.
	Kubectl func(args ...string) string
}

// Policies are the ValidatingAdmissionPolicies of lock-operator and their bindings.
type Policies struct {
	// InForce are the names of the policies whose refusals a binding puts into effect.
	InForce []string
	// Dangling are bindings of policies that do not exist, such as "payments-lock-keys of lock-operator-keys".
	Dangling []string
}

const (
	// operatorCondition is the match condition of the webhook that exempts the operator's own users.
	operatorCondition = "not-the-operator"
	// nameLabel is on all objects of an installation, with the value operatorName, which the names of policies have in them unless
	// a release of the chart replaces it.
	nameLabel, operatorName = "app.kubernetes.io/name", "lock-operator"
)

// defaultNamespace is where config/default installs the operator.
const defaultNamespace = "forrst-system"

// verbs are the verbs on locks that users may have.
var verbs = []string{"get", "list", "watch", "create", "update", "delete", "force-release"}

// errMayNotCreate means that the dry run was not tried.
var errMayNotCreate = errors.New("the caller may not create locks")

// versionTimeout bounds the first request: a server that does not answer is a finding.
const versionTimeout = 10 * time.Second

// Ask gathers the facts of the cluster and the namespace of a session. It changes nothing: locks are created in dry runs.
// Program is the version of this program.
func Ask(ctx context.Context, s *session.Session, program string) (*Facts, error) {
	config, err := s.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = versionTimeout
	// What is missing is a finding, and no warning of the API server.
	config.WarningHandler = rest.NoWarnings{}
	versions, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cluster, err := s.Cluster()
	if err != nil {
		return nil, err
	}
	facts := &Facts{Namespace: s.Namespace(), Program: program, OperatorNamespace: defaultNamespace, Kubectl: s.Kubectl}
	// ServerVersion would lose why the API server refuses the request.
	answer := versions.RESTClient().Get().AbsPath("/version").Do(ctx)
	content, _ := answer.Raw()
	if facts.Kubernetes.Err = answer.Error(); facts.Kubernetes.Err == nil {
		facts.Kubernetes.Err = json.Unmarshal(content, &facts.Kubernetes.Value)
	}
	if facts.Kubernetes.Err != nil {
		return facts, nil //nolint:nilerr // It is what doctor tells.
	}
	var self authenticationv1.SelfSubjectReview
	facts.Self.Err = cluster.Create(ctx, &self)
	facts.Self.Value = self.Status.UserInfo
	facts.Definition.Value = &apiextensionsv1.CustomResourceDefinition{}
	facts.Definition.Err = cluster.Get(ctx, client.ObjectKey{Name: "locks." + v1alpha1.GroupVersion.Group}, facts.Definition.Value)
	_, facts.Served = cluster.RESTMapper().RESTMapping(v1alpha1.GroupVersion.WithKind("Lock").GroupKind(), v1alpha1.GroupVersion.Version)
	facts.Rights = rights(ctx, cluster, facts.Namespace)
	askAboutWebhooks(ctx, cluster, facts)
	facts.Policies = policiesOf(ctx, cluster)
	if facts.Rights.Err == nil && !slices.Contains(facts.Rights.Value, "create") {
		facts.Admitted.Err = errMayNotCreate
	} else if facts.Admitted = tryLock(ctx, cluster, facts.Namespace, ""); facts.Admitted.Err == nil {
		facts.Forged = tryLock(ctx, cluster, facts.Namespace, "forged-by-kubectl-lock-doctor")
	}
	var deployments appsv1.DeploymentList
	facts.Deployments.Err = cluster.List(ctx, &deployments, client.InNamespace(facts.OperatorNamespace), client.MatchingLabels{nameLabel: operatorName})
	facts.Deployments.Value = deployments.Items
	var certificates unstructured.UnstructuredList
	certificates.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "CertificateList"})
	facts.Certificates.Err = cluster.List(ctx, &certificates, client.InNamespace(facts.OperatorNamespace))
	facts.Certificates.Value = certificates.Items
	var namespace corev1.Namespace
	facts.Labels.Err = cluster.Get(ctx, client.ObjectKey{Name: facts.Namespace}, &namespace)
	facts.Labels.Value = namespace.Labels
	if len(named(facts.Webhooks.Value, guardWebhook)) > 0 && fence.isAskedBy(namespace.Labels) {
		tried := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: facts.Namespace, Name: "kubectl-lock-doctor-" + lock.NewOwner()}}
		facts.Guarded = cluster.Create(ctx, tried, client.DryRunAll)
	}
	facts.Local, facts.Server = s.Clock.Now(), s.Now()
	return facts, nil
}

func rights(ctx context.Context, cluster client.Client, namespace string) (rights Answer[[]string]) {
	for _, verb := range verbs {
		review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: "locks",
			},
		}}
		if err := cluster.Create(ctx, &review); err != nil {
			return Answer[[]string]{Err: err}
		}
		if review.Status.Allowed {
			rights.Value = append(rights.Value, verb)
		}
	}
	return rights
}

func askAboutWebhooks(ctx context.Context, cluster client.Client, facts *Facts) {
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	if facts.Webhooks.Err = cmp.Or(cluster.List(ctx, &mutating), cluster.List(ctx, &validating)); facts.Webhooks.Err != nil {
		return
	}
	for _, configuration := range validating.Items {
		facts.Webhooks.Value = append(facts.Webhooks.Value, configuration.Webhooks...)
	}
	for _, configuration := range mutating.Items {
		for _, webhook := range configuration.Webhooks {
			facts.Webhooks.Value = append(facts.Webhooks.Value, admissionregistrationv1.ValidatingWebhook{
				Name: webhook.Name, ClientConfig: webhook.ClientConfig, Rules: webhook.Rules, FailurePolicy: webhook.FailurePolicy,
				NamespaceSelector: webhook.NamespaceSelector, MatchConditions: webhook.MatchConditions,
			})
		}
	}
	for _, webhook := range named(facts.Webhooks.Value, lockWebhook) {
		for _, user := range exemptedUsers(webhook) {
			account, isAccount := strings.CutPrefix(user, "system:serviceaccount:")
			namespace, name, isNamed := strings.Cut(account, ":")
			if !isAccount || !isNamed {
				continue // Other users cannot be made in the cluster.
			}
			facts.OperatorNamespace = namespace
			err := cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.ServiceAccount{})
			switch {
			case apierrors.IsNotFound(err):
				facts.Missing.Value = append(facts.Missing.Value, user)
			case err != nil:
				facts.Missing.Err = err
			}
		}
	}
}

func policiesOf(ctx context.Context, cluster client.Client) (answer Answer[Policies]) {
	var policies admissionregistrationv1.ValidatingAdmissionPolicyList
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	if answer.Err = cmp.Or(cluster.List(ctx, &policies), cluster.List(ctx, &bindings)); answer.Err != nil {
		return answer
	}
	isOfOperator := map[string]bool{}
	for _, policy := range policies.Items {
		isOfOperator[policy.Name] = policy.Labels[nameLabel] == operatorName
	}
	for _, binding := range bindings.Items {
		name := binding.Spec.PolicyName
		isOfOperator, isThere := isOfOperator[name]
		switch {
		case !slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny):
		case isOfOperator:
			answer.Value.InForce = append(answer.Value.InForce, name)
		case !isThere && strings.Contains(name, operatorName):
			answer.Value.Dangling = append(answer.Value.Dangling, binding.Name+" of "+name)
		}
	}
	return answer
}

var quotedUser = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)

// exemptedUsers returns the users whom the match condition of the operator leaves out.
func exemptedUsers(webhook admissionregistrationv1.ValidatingWebhook) (users []string) {
	for _, condition := range webhook.MatchConditions {
		if condition.Name == operatorCondition {
			for _, match := range quotedUser.FindAllStringSubmatch(condition.Expression, -1) {
				users = append(users, match[1]+match[2])
			}
		}
	}
	return users
}

// tryLock creates a lock that every installation grants in a dry run, with a holder of its own choice if that is not empty.
func tryLock(ctx context.Context, cluster client.Client, namespace, holder string) Answer[*v1alpha1.Lock] {
	key := "kubectl-lock:doctor:" + lock.NewOwner()
	tried := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()},
		Spec:       v1alpha1.LockSpec{Key: key, Holder: holder, TTL: &v1alpha1.Duration{Duration: time.Second}, Reason: "dry run of kubectl lock doctor"},
	}
	err := cluster.Create(ctx, tried, client.DryRunAll)
	return Answer[*v1alpha1.Lock]{Value: tried, Err: err}
}
