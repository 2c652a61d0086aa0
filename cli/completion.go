package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
)

const (
	// completionTimeout bounds how long a shell hangs at the tab key.
	completionTimeout = 3 * time.Second
	// maxCompletions is more than a shell shows.
	maxCompletions = 1000
)

// completer answers a shell.
type completer = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// completeKeys completes one KEY with those of the locks that are held.
func completeKeys(s *session.Session) completer {
	return func(command *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
		defer cancel()
		var keys []string
		var err error
		if kind, _, isNamed := strings.Cut(prefix, "/"); isNamed && kind == "job" && takesJobs[command.Name()] {
			keys, err = lockedJobs(ctx, s)
		} else {
			keys, err = heldKeys(ctx, s, takesOwn[command.Name()])
		}
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return beginningWith(prefix, keys), cobra.ShellCompDirectiveNoFileComp
	}
}

// takesJobs are the commands that take job/NAME in place of a KEY, and takesOwn those of one's own locks.
var (
	takesJobs = map[string]bool{"who": true, "wait": true, "free": true}
	takesOwn  = map[string]bool{"renew": true, "release": true}
)

// lockedJobs returns job/NAME of the Jobs that run under locks.
func lockedJobs(ctx context.Context, s *session.Session) (names []string, err error) {
	namespace, err := s.Namespace()
	if err != nil {
		return nil, err
	}
	cluster, err := s.Cluster()
	if err != nil {
		return nil, err
	}
	jobs := new(metav1.PartialObjectMetadataList)
	jobs.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("JobList"))
	err = cluster.List(ctx, jobs, client.InNamespace(namespace), client.Limit(maxCompletions), client.MatchingLabels{v1alpha1.LockLabel: "true"})
	for index := range jobs.Items {
		names = append(names, "job/"+jobs.Items[index].Name)
	}
	return names, err
}

// heldKeys returns the keys of all locks, or of the user's own.
func heldKeys(ctx context.Context, s *session.Session, own bool) (keys []string, err error) {
	namespace, err := s.Namespace()
	if err != nil {
		return nil, err
	}
	if s.UsesFacade() {
		backend, err := s.Backend(ctx)
		if err != nil {
			return nil, err
		}
		held, err := backend.List(ctx, namespace, lock.Filter{})
		for index := range held {
			keys = append(keys, held[index].Spec.FullKey().Bare())
		}
		return keys, err
	}
	cluster, err := s.Cluster()
	if err != nil {
		return nil, err
	}
	source := &locks.Source{Cluster: cluster, Namespace: namespace}
	if own {
		review := &authenticationv1.SelfSubjectReview{}
		if err := cluster.Create(ctx, review); err != nil {
			return nil, err
		}
		source.Fields = fields.OneTermEqualSelector("spec.holder", review.Status.UserInfo.Username)
	}
	_, err = source.List(ctx, func(each *v1alpha1.Lock) {
		keys = append(keys, each.Spec.FullKey().Bare())
	})
	return keys, err
}

// completeNamespaces completes the flag --namespace.
func completeNamespaces(s *session.Session) completer {
	return func(command *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
		defer cancel()
		cluster, err := s.Cluster()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespaces := new(metav1.PartialObjectMetadataList)
		namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
		if err := cluster.List(ctx, namespaces, client.Limit(maxCompletions)); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for index := range namespaces.Items {
			names = append(names, namespaces.Items[index].Name)
		}
		return beginningWith(prefix, names), cobra.ShellCompDirectiveNoFileComp
	}
}

func beginningWith(prefix string, all []string) []cobra.Completion {
	var found []cobra.Completion
	for _, each := range all {
		if strings.HasPrefix(each, prefix) && len(found) < maxCompletions {
			found = append(found, each)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
