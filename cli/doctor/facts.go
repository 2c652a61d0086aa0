package doctor

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/version"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Answer is what was asked for, or why it is not known.
type Answer[T any] struct {
	Value T
	Err   error
}

// Facts are what [Ask] has found out about an installation.
type Facts struct {
	// Namespace is the one of the caller's locks.
	Namespace string
	// Local is the clock of this machine when the facts were known, and Server that of the API server at
	// the same time.
	Local, Server time.Time
	// Program is the version of this program.
	Program string
	// Kubernetes is the version of the API server.
	Kubernetes Answer[version.Info]
	// Self is who the caller is.
	Self Answer[authenticationv1.UserInfo]
	// Definition is the definition of the type Lock. Served is how the API server shows the type to all
	// callers, for those who may not read definitions.
	Definition Answer[Definition]
	Served     error
	// Mutating and Validating are all webhook configurations of the cluster.
	Mutating   Answer[[]admissionregistrationv1.MutatingWebhookConfiguration]
	Validating Answer[[]admissionregistrationv1.ValidatingWebhookConfiguration]
	// Missing are the users whom the webhook configuration exempts, and whose service accounts do not
	// exist. The error says that this is not known.
	Missing Answer[[]string]
	// Rights are those of the caller to locks in the namespace.
	Rights Answer[[]Right]
	// Admitted is what became of a dry run of a new lock. Forged is that of one with a holder of its own
	// choice, if the first was admitted.
	Admitted, Forged Answer[*v1alpha1.Lock]
	// Guarded is what became of a dry run of a ConfigMap in a namespace that has opted in to guards. Nil if it was
	// admitted, or not tried.
	Guarded error
	// OperatorNamespace is where the operator runs, as the webhook configuration says.
	OperatorNamespace string
	// Deployments are those of the operator, and Certificates what cert-manager keeps there.
	Deployments  Answer[[]appsv1.Deployment]
	Certificates Answer[[]Certificate]
	// Labels are those of the namespace.
	Labels Answer[map[string]string]
}

// Definition is what counts of the CustomResourceDefinition of locks.
type Definition struct {
	// IsEstablished says that the API server serves it.
	IsEstablished bool
	// Versions are the versions that are served.
	Versions []string
	// Fields are the fields of a lock's spec.
	Fields []string
}

// Certificate is one that cert-manager keeps.
type Certificate struct {
	Name string
	// IsReady says that the certificate was issued and is up to date. Message says why it is not.
	IsReady bool
	Message string
	// NotAfter is when it ends. Zero if it was not issued.
	NotAfter time.Time
}

// Right is a verb on locks.
type Right struct {
	Verb      string
	IsAllowed bool
}
