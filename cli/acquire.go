package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"forrst.dev/lock-operator/cli/durations"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/tokenfile"
	"forrst.dev/lock-operator/lock"
)

// defaultHandTTL is the ttl of a lock that is taken by hand: nothing renews it.
const defaultHandTTL = 5 * time.Minute

// acquireOptions are the options of one "acquire".
type acquireOptions struct {
	grantOptions

	ttl          time.Duration
	wait         time.Duration
	reason       string
	isOwnerGiven bool
}

func newAcquire(s *session.Session) *cobra.Command {
	options := acquireOptions{grantOptions: grantOptions{Session: s}}
	command := &cobra.Command{
		Use:        "acquire KEY",
		SuggestFor: []string{"lock", "take"},
		Short:      "Take a lock by hand, and keep what proves it in a file",
		Long: `Take a lock, and leave it held when this command ends. Nothing renews the lock:
it ends after its --ttl, unless it is renewed or released before.

What proves that you hold the lock, its owner token, goes to a file that only you
may read, or to a file descriptor. It is never printed. The commands renew and
release find the file by themselves, if they are run by the same user on the same
machine.

To run one command under a lock, use "kubectl lock run": it renews the lock, and
releases it whatever happens.`,
		Example: `  # Take a lock for an hour, work, and release it
  kubectl lock acquire billing:report --ttl 1h --reason "monthly close"
  kubectl lock release billing:report

  # Wait for up to ten minutes, and keep the token in a file of your choice
  kubectl lock acquire billing:report --wait 10m --owner-file ./token

  # In a script: do something else if the lock is held
  kubectl lock acquire billing:report || [ $? -ne 201 ] || echo "busy"`,
		Args:              newKey(s),
		ValidArgsFunction: completeKeys(s),
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args[0])
		},
	}
	flags := command.Flags()
	options.addFlags(flags)
	durations.Var(flags, &options.ttl, "ttl", defaultHandTTL, "How long the lock lives unless it is renewed")
	durations.VarOrForever(flags, &options.wait, "wait", 0, "How long to wait for the holder, such as 10m; 0 for not at all, forever for as long as it takes")
	flags.StringVar(&options.reason, "reason", "", "Why you hold the lock, for people. Default: this command and the name of the machine")
	flags.BoolVar(&options.isOwnerGiven, "owner-stdin", false, "Read the owner token from the standard input, instead of making a random one. No two grants may share a token")
	return command
}

func (o *acquireOptions) run(ctx context.Context, key string) error {
	if o.wait < 0 {
		return failure.Usagef("--wait is %s, and must not be negative", o.wait)
	}
	if err := o.checkOutput(); err != nil {
		return err
	}
	if o.ttl <= 0 {
		return failure.Usagef("--ttl is %s, and has to be more than zero", o.ttl)
	}
	var owner string
	if o.isOwnerGiven {
		given, err := tokenfile.Read(o.In)
		if err != nil {
			return failure.Usagef("--owner-stdin: %v", err)
		}
		owner = given.Owner
	}
	place, err := o.place(key)
	if err != nil {
		return err
	}
	// Before there is a file that an interrupt would leave.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Before the lock is taken: one whose token cannot be kept would have to be given back.
	draft, err := place.Prepare()
	if err != nil {
		return failure.New(failure.Usage, err.Error(), "name another file by --owner-file")
	}
	var held *lock.Held
	client, err := o.client(ctx)
	if err == nil {
		held, err = take(ctx, o.Session, client, key, o.wait, lock.WithTTL(o.ttl), lock.WithReason(cmp.Or(o.reason, defaultReason("acquire"))), lock.WithOwner(owner), lock.WithoutRenewal())
	}
	if err != nil {
		draft.Drop()
		return o.explain(ctx, key, err)
	}
	proof := tokenfile.Proof{Namespace: o.Namespace(), Key: held.Key(), Owner: held.Owner(), FencingToken: held.FencingToken()}
	if err := draft.Keep(proof); err != nil {
		return errors.Join(failure.New(failure.Failed, err.Error(), "the lock was released; name another file by --owner-file"), held.Release(ctx))
	}
	info := held.Info()
	if err := held.Detach(); err != nil {
		return lost(held.Key(), err)
	}
	if err := o.print("acquired", held.Key(), info, place); err != nil || o.output != "" {
		return err
	}
	fmt.Fprintf(o.Out, "the owner token, which renew and release need, is in %s\n", place)
	return nil
}

// take takes the lock, or says who holds it and waits. The error is an [*ownHolderError] if a wait would never end, be it that
// the caller does not wait: then it needs no advice to.
func take(ctx context.Context, s *session.Session, locks *lock.Client, key string, wait time.Duration, options ...lock.Option) (*lock.Held, error) {
	if err := checkKey(ctx, s, key); err != nil {
		return nil, err
	}
	held, err := locks.TryAcquire(ctx, key, options...)
	if !errors.Is(err, lock.ErrHeld) {
		return held, err
	}
	if by, isKnown := errors.AsType[*lock.HeldError](err); isKnown {
		if own := checkOwnHolder(s, by.Key, currentLock(ctx, s, by)); own != nil {
			return nil, own
		}
	}
	if wait == 0 {
		return nil, err
	}
	fmt.Fprintf(s.ErrOut, "waiting: %s\n", busy(ctx, s, err))
	return locks.Acquire(ctx, key, append(options, lock.WithWait(wait))...)
}

// explain says what a caller can do who did not get the lock.
func (o *acquireOptions) explain(ctx context.Context, key string, err error) error {
	if own, isOwn := errors.AsType[*ownHolderError](err); isOwn {
		return failure.New(failure.Busy, own.Error(), "do not acquire it: this command is under the lock already")
	}
	if errors.Is(err, lock.ErrHeld) {
		return failure.New(failure.Busy, busy(ctx, o.Session, err), "see who holds it, and whether the holder is alive: "+o.Command("who", key),
			"wait for it: "+o.Command("acquire", key, "--wait", "10m"))
	}
	if errors.Is(err, context.Canceled) {
		return failure.New(interruptedBy(ctx), fmt.Sprintf("interrupted; %s was not acquired", key))
	}
	if apierrors.IsNotFound(err) && !o.UsesFacade() {
		if cluster, failed := o.Cluster(); failed == nil {
			return cmp.Or(checkNamespace(ctx, o.Session, cluster, o.Namespace()), err)
		}
	}
	return err
}

// interruptedBy returns the status of a program that a signal has ended: 128+n.
func interruptedBy(ctx context.Context) failure.Code {
	if cause := context.Cause(ctx); cause != nil && strings.HasPrefix(cause.Error(), syscall.SIGTERM.String()) {
		return failure.Code(128 + int(syscall.SIGTERM))
	}
	return failure.Code(128 + int(syscall.SIGINT))
}

// defaultReason tells people which program on which machine holds a lock, where no reason was given.
func defaultReason(command string) string {
	reason := "kubectl lock " + command
	if host, err := os.Hostname(); err == nil {
		reason += " on " + host
	}
	return reason
}
