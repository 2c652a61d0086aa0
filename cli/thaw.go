package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/freeing"
	"forrst.dev/lock-operator/cli/freezing"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
)

// thawOptions are the options of one "thaw".
type thawOptions struct {
	*session.Session

	key string
}

func newThaw(s *session.Session) *cobra.Command {
	options := thawOptions{Session: s}
	command := &cobra.Command{
		Use:   "thaw [NAMESPACE]",
		Short: "End your freeze of a namespace early",
		Long: `End your freeze of a namespace before its time. To end that of another user, see
kubectl lock free.`,
		Example:           `  kubectl lock thaw shop`,
		Args:              oneNamespace,
		ValidArgsFunction: completeNamespaces(s),
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
	command.Flags().StringVar(&options.key, "key", freezing.Key, "KEY of the lock")
	return command
}

func (o *thawOptions) run(ctx context.Context, args []string) error {
	namespace := namespaceOf(o.Session, args)
	cluster, err := o.Cluster()
	if err != nil {
		return err
	}
	notFrozen := failure.New(failure.NotHeld, fmt.Sprintf("namespace %s is not frozen by the lock %s", namespace, o.key))
	freeze := &v1alpha1.Lock{}
	err = cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.FullKeyOf(o.key).ObjectName()}, freeze)
	switch {
	case apierrors.IsNotFound(err):
		if err := checkNamespace(ctx, o.Session, cluster, namespace); err != nil {
			return err
		}
		return notFrozen
	case err != nil:
		return err
	case len(freeze.Spec.Guards) == 0, freeze.Spec.ExpireTime != nil && !freeze.Spec.ExpireTime.After(o.Now()):
		return notFrozen
	case !ownsLock(ctx, o.Session, freeze):
		reason := ""
		if freeze.Spec.Reason != "" {
			reason = " (" + terminal.Clean(freeze.Spec.Reason) + ")"
		}
		return failure.New(failure.Refused, fmt.Sprintf("%s has frozen namespace %s%s; that ends %s", terminal.Clean(freeze.Spec.Holder), namespace, reason, o.Times().In(locks.RowOf(freeze).Expires)),
			"ask that user to thaw it", "end it by force: "+o.Kubectl("lock", "free", o.key, "-n", namespace, "--reason", "..."))
	}
	err = freeing.Order{Shown: freeze}.Carry(ctx, cluster)
	switch {
	case errors.Is(err, freeing.ErrGone):
		return notFrozen
	case err != nil:
		return err
	}
	fmt.Fprintf(o.Out, "namespace %s is no longer frozen\n", namespace)
	return nil
}
