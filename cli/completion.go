package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		keys, err := heldKeys(ctx, s)
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return beginningWith(prefix, keys), cobra.ShellCompDirectiveNoFileComp
	}
}

func heldKeys(ctx context.Context, s *session.Session) (keys []string, err error) {
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
	_, err = (&locks.Source{Cluster: cluster, Namespace: namespace}).List(ctx, func(each *v1alpha1.Lock) {
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
