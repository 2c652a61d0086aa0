package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
)

// oneKey says what is wrong with the arguments of a command of one KEY.
func oneKey(s *session.Session) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) != 1 {
			return failure.New(failure.Usage, fmt.Sprintf("%s needs one KEY, and was given %d arguments", command.CommandPath(), len(args)),
				"see the keys of the locks that are held: "+s.Command("list"), "put a KEY with spaces in quotation marks")
		}
		if err := v1alpha1.ValidateStoredKey(args[0]); err != nil {
			return failure.Usagef("the KEY %v", err)
		}
		return nil
	}
}

// newKey is oneKey for a command that takes the lock. Other commands accept more: a held lock may have a KEY that this version refuses.
func newKey(s *session.Session) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if err := oneKey(s)(command, args); err != nil {
			return err
		}
		if err := v1alpha1.ValidateKey(args[0]); err != nil {
			return failure.Usagef("the KEY %v", err)
		}
		return nil
	}
}

// newKeys is newKey for a command that takes the locks of 1 to [lock.MaxTogether] keys.
func newKeys(s *session.Session) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		switch {
		case len(args) <= 1:
			return newKey(s)(command, args)
		case len(args) > lock.MaxTogether:
			return failure.New(failure.Usage, fmt.Sprintf("%s needs 1 to %d KEYs, and was given %d", command.CommandPath(), lock.MaxTogether, len(args)),
				"put a KEY with spaces in quotation marks")
		}
		given := map[v1alpha1.FullKey]bool{}
		for _, key := range args {
			if err := v1alpha1.ValidateKey(key); err != nil {
				return failure.New(failure.Usage, fmt.Sprintf("the KEY %q %v", key, err), "correct that KEY, or leave it out")
			}
			fullKey := v1alpha1.FullKeyOf(key)
			if given[fullKey] {
				return failure.New(failure.Usage, fmt.Sprintf("the KEY %q is given twice", key), "name each KEY once")
			}
			given[fullKey] = true
		}
		return nil
	}
}

// refusedKey says why no lock is acquired under a key that is not held, and what was meant; nil for a key that a new lock may
// have. To call the key free would have two callers work at a time: it looks like the key that the other one has locked.
func refusedKey(ctx context.Context, s *session.Session, named locks.ID) error {
	err := v1alpha1.ValidateKey(named.Key.Bare())
	if err == nil {
		return nil
	}
	refused := failure.Usagef("the KEY %v", err)
	if !s.UsesFacade() {
		if cluster, err := s.Cluster(); err == nil {
			refused.Do = whereElse(ctx, s, cluster, named)
		}
	}
	return refused
}

// noArgs refuses arguments.
func noArgs(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return failure.New(failure.Usage, fmt.Sprintf("%s takes no arguments, and was given %d", command.CommandPath(), len(args)),
		"see "+command.CommandPath()+" --help")
}
