package guard

import (
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// nodes is the group of all kubelets.
const nodes = "system:nodes"

// kubernetes are the users by which Kubernetes does what objects say, and cleans up after them. Guards
// do not hold them up: a namespace must terminate, dependents go with their owners, and the objects of
// a guarded one follow it. The match conditions of config/guards/webhook.yaml list the same users, so
// that none of them waits for a webhook that is away.
var kubernetes = []string{
	"system:apiserver",
	"system:kube-controller-manager",
	"system:cloud-controller-manager",
	"system:serviceaccount:kube-system:cloud-controller-manager",
	"system:serviceaccount:kube-system:cronjob-controller",
	"system:serviceaccount:kube-system:daemon-set-controller",
	"system:serviceaccount:kube-system:deployment-controller",
	"system:serviceaccount:kube-system:generic-garbage-collector",
	"system:serviceaccount:kube-system:horizontal-pod-autoscaler",
	"system:serviceaccount:kube-system:job-controller",
	"system:serviceaccount:kube-system:legacy-service-account-token-cleaner",
	"system:serviceaccount:kube-system:namespace-controller",
	"system:serviceaccount:kube-system:replicaset-controller",
	"system:serviceaccount:kube-system:replication-controller",
	"system:serviceaccount:kube-system:root-ca-cert-publisher",
	"system:serviceaccount:kube-system:service-controller",
	"system:serviceaccount:kube-system:statefulset-controller",
	"system:serviceaccount:kube-system:storage-version-migrator-controller",
	"system:serviceaccount:kube-system:ttl-after-finished-controller",
}

// isExempt reports whether guards do not concern the user: Kubernetes itself, and the operator, which
// starts and suspends the Jobs that run under locks.
func isExempt(user authenticationv1.UserInfo, operator string) bool {
	return user.Username == operator || slices.Contains(kubernetes, user.Username) || slices.Contains(user.Groups, nodes)
}
