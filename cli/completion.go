package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// complete completes a word with those that are found and begin with it.
func complete(command *cobra.Command, prefix string, find func(context.Context) ([]string, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
	defer cancel()
	words, err := find(ctx)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words = slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, prefix) })
	words = words[:min(len(words), maxCompletions)]
	slices.Sort(words)
	return slices.Compact(words), cobra.ShellCompDirectiveNoFileComp
}

// takesJobs are the commands that take job/NAME in place of a KEY; takesOwn are the commands for locks of the user.
var (
	takesJobs = map[string]bool{"who": true, "wait": true, "free": true}
	takesOwn  = map[string]bool{"renew": true, "release": true}
)

// completeKeys completes one KEY with the keys of held locks, and job/ with the Jobs that run under locks.
func completeKeys(s *session.Session) completer {
	return func(command *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch {
		case len(args) > 0:
			return nil, cobra.ShellCompDirectiveNoFileComp
		case strings.HasPrefix(prefix, "job/") && takesJobs[command.Name()]:
			return complete(command, prefix, func(ctx context.Context) ([]string, error) {
				return namesOf(ctx, s, "job/", batchv1.SchemeGroupVersion.WithKind("JobList"), client.InNamespace(s.Namespace()), client.MatchingLabels{v1alpha1.LockLabel: "true"})
			})
		}
		return complete(command, prefix, func(ctx context.Context) ([]string, error) { return heldKeys(ctx, s, takesOwn[command.Name()]) })
	}
}

// completeRun completes the KEYs of run with those that are not given yet, and leaves its COMMAND to the shell.
func completeRun(s *session.Session) completer {
	return func(command *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if s.IsBehindDash {
			return nil, cobra.ShellCompDirectiveDefault
		}
		keys, directive := completeKeys(s)(command, nil, prefix)
		return slices.DeleteFunc(keys, func(key string) bool { return slices.Contains(args, key) }), directive
	}
}

// completeNamespaces completes a namespace.
func completeNamespaces(s *session.Session) completer {
	return func(command *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return complete(command, prefix, func(ctx context.Context) ([]string, error) {
			return namesOf(ctx, s, "", corev1.SchemeGroupVersion.WithKind("NamespaceList"))
		})
	}
}

// namesOf returns the names of objects, each behind a prefix.
func namesOf(ctx context.Context, s *session.Session, prefix string, kind schema.GroupVersionKind, options ...client.ListOption) (names []string, err error) {
	cluster, err := s.Cluster()
	if err != nil {
		return nil, err
	}
	list := new(metav1.PartialObjectMetadataList)
	list.SetGroupVersionKind(kind)
	err = cluster.List(ctx, list, append(options, client.Limit(maxCompletions))...)
	for index := range list.Items {
		names = append(names, prefix+list.Items[index].Name)
	}
	return names, err
}

// heldKeys returns the keys of all locks, or of the user's own.
func heldKeys(ctx context.Context, s *session.Session, own bool) (keys []string, err error) {
	if s.UsesFacade() {
		backend, err := s.Backend(ctx)
		if err != nil {
			return nil, err
		}
		held, err := backend.List(ctx, s.Namespace(), lock.Filter{})
		for index := range held {
			keys = append(keys, held[index].Spec.FullKey().Bare())
		}
		return keys, err
	}
	cluster, err := s.Cluster()
	if err != nil {
		return nil, err
	}
	source := &locks.Source{Cluster: cluster, Namespace: s.Namespace()}
	if own {
		user, err := s.User(ctx)
		if err != nil {
			return nil, err
		}
		source.Fields = fields.OneTermEqualSelector("spec.holder", user.Name)
	}
	all, _, err := source.List(ctx)
	for _, each := range all {
		keys = append(keys, each.Spec.FullKey().Bare())
	}
	return keys, err
}
