package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"forrst.dev/lock-operator/cli/durations"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
)

// renewOptions are the options of one "renew".
type renewOptions struct {
	grantOptions

	ttl time.Duration
}

func newRenew(s *session.Session) *cobra.Command {
	options := renewOptions{grantOptions: grantOptions{Session: s}}
	command := &cobra.Command{
		Use:   "renew KEY",
		Short: "Prolong a lock that was taken with acquire",
		Long: `Prolong a lock that was taken with acquire: it lives for its ttl from now on. The
time that was left is not added.

If the lock was lost, the exit status is 202. Stop the work then: another holder
may have begun.`,
		Example: `  # Prolong a lock by its own ttl
  kubectl lock renew billing:report

  # Prolong the lock that "kubectl lock run" holds for this script
  kubectl lock renew "$FORRST_LOCK_KEY" --owner-file "$FORRST_LOCK_TOKEN_FILE" --ttl 10m`,
		Args:              oneKey(s),
		ValidArgsFunction: completeKeys(s),
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args[0])
		},
	}
	flags := command.Flags()
	options.addFlags(flags)
	durations.Var(flags, &options.ttl, "ttl", 0, "How long the lock lives from now on. Default: the ttl that it has")
	return command
}

func (o *renewOptions) run(ctx context.Context, key string) error {
	if err := o.checkOutput(); err != nil {
		return err
	}
	if o.ttl < 0 {
		return failure.Usagef("--ttl is %s, and must not be negative", o.ttl)
	}
	place, proof, err := o.proof(ctx, key)
	if err != nil {
		return err
	}
	client, err := o.client(ctx)
	if err != nil {
		return err
	}
	held, err := client.Resume(ctx, key, shown(proof), lock.WithTTL(o.ttl), lock.WithoutRenewal())
	if err != nil {
		return o.ended(key, place, proof, err)
	}
	info := held.Info()
	if err := held.Detach(); err != nil {
		return lost(held.Key(), err)
	}
	return o.print("renewed", held.Key(), info, place)
}
