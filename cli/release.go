package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
)

// releaseOptions are the options of one "release".
type releaseOptions struct {
	grantOptions
}

func newRelease(s *session.Session) *cobra.Command {
	options := releaseOptions{grantOptions{Session: s}}
	command := &cobra.Command{
		Use:        "release KEY",
		SuggestFor: []string{"unlock"},
		Short:      "Release a lock that was taken with acquire",
		Long: `Release a lock that was taken with acquire, and remove the file with its owner
token.

Only that grant is released. If it has ended, nothing is done, and the exit
status is 202: another holder may have the lock. To end the lock of another
holder, see kubectl lock free.`,
		Example: `  kubectl lock release billing:report

  # With the owner token in a file of your choice
  kubectl lock release billing:report --owner-file ./token`,
		Args:              oneKey(s),
		ValidArgsFunction: completeKeys(s),
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args[0])
		},
	}
	options.addFlags(command.Flags())
	return command
}

func (o *releaseOptions) run(ctx context.Context, key string) error {
	if err := o.checkOutput(); err != nil {
		return err
	}
	place, proof, err := o.proof(ctx, key)
	if err != nil {
		return err
	}
	client, err := o.client(ctx)
	if err != nil {
		return err
	}
	if err := client.Release(ctx, key, shown(proof)); err != nil {
		return o.ended(key, place, proof, err)
	}
	if err := place.Remove(proof); err != nil {
		fmt.Fprintf(o.ErrOut, "warning: the owner token, which proves nothing any more, could not be removed: %v\n", err)
	}
	fullKey := v1alpha1.FullKeyOf(key)
	switch o.output {
	case "json":
		return o.printJSON(grantOutput{Namespace: o.Namespace(), Key: fullKey.Bare(), Name: fullKey.ObjectName(), IsReleased: true})
	case "name":
		fmt.Fprintf(o.Out, "lock.%s/%s\n", v1alpha1.GroupVersion.Group, fullKey.ObjectName())
	default:
		fmt.Fprintf(o.Out, "%s released\n", terminal.Visible(fullKey.Bare()))
	}
	return nil
}
