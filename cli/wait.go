package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/durations"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/human"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/lock"
)

// pollPeriod is how often a façade is asked that does not show changes to this user.
const pollPeriod = time.Second

// wait is the command "wait".
type wait struct {
	*session.Session
	state   string
	timeout time.Duration

	key       v1alpha1.FullKey
	namespace string
	// wasHeld says that the lock has had a holder.
	wasHeld bool
}

func newWait(s *session.Session) *cobra.Command {
	w := &wait{Session: s}
	command := &cobra.Command{
		Use:   "wait KEY",
		Short: "Wait until a lock is free, or held",
		Long: `Wait until a lock is free, or held. It waits by a watch. With --server, it asks the
façade once a second if you lack the verb watch on locks.

In place of the KEY, job/NAME and pod/NAME name the lock of that Job or Pod.

A lock that is free can be held again a moment later. To hold it yourself, use
kubectl lock run or acquire, which wait in turn.`,
		Example: `  # Wait for the nightly job, for an hour at most
  kubectl lock wait billing:report --timeout 1h

  # Wait until the worker has it
  kubectl lock wait billing:report --for held`,
		Args:              oneKey(s),
		ValidArgsFunction: completeKeys(s),
		RunE:              func(command *cobra.Command, args []string) error { return w.run(command.Context(), args[0]) },
	}
	command.Flags().StringVar(&w.state, "for", "free", "What to wait for: free or held")
	durations.VarOrForever(command.Flags(), &w.timeout, "timeout", 0, "How long to wait at most, for example 5m. 0 means without end")
	_ = command.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]cobra.Completion{"free", "held"}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (w *wait) run(ctx context.Context, key string) (err error) {
	if w.state != "free" && w.state != "held" {
		return failure.Usagef("--for is %q, and must be free or held", w.state)
	}
	if w.timeout < 0 {
		return failure.Usagef("--timeout is %s, and must not be negative", w.timeout)
	}
	w.namespace = w.Namespace()
	named, err := targetOf(ctx, w.Session, key)
	if err != nil {
		return err
	}
	w.key = named.key
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	states := &lastState{changed: make(chan *v1alpha1.Lock, 1)}
	failed := make(chan error, 1)
	follow, err := w.follower(ctx)
	if err != nil {
		return err
	}
	go func() { failed <- follow(ctx, states) }()
	seen, err := w.await(ctx, states.changed, failed)
	if err != nil {
		return err
	}
	if seen == nil {
		if err := w.explainFree(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintf(w.Out, "%s is %s\n", terminal.Visible(w.key.Bare()), w.state)
	return nil
}

// explainFree tells of a lock that does not exist, that its namespace does not exist either, or where else the
// key is held.
func (w *wait) explainFree(ctx context.Context) error {
	if w.UsesFacade() {
		return nil
	}
	cluster, err := w.Cluster()
	if err != nil {
		return err
	}
	if err := checkNamespace(ctx, w.Session, cluster, w.namespace); err != nil {
		return err
	}
	if !w.wasHeld {
		for _, hint := range whereElse(ctx, w.Session, cluster, locks.ID{Namespace: w.namespace, Key: w.key}) {
			fmt.Fprintf(w.ErrOut, "note: %s\n", hint)
		}
	}
	return nil
}

// follower returns what shows the lock until its context ends.
func (w *wait) follower(ctx context.Context) (func(context.Context, *lastState) error, error) {
	if w.UsesFacade() {
		backend, err := w.Backend(ctx)
		return func(ctx context.Context, states *lastState) error { return w.ask(ctx, backend, states) }, err
	}
	cluster, err := w.Cluster()
	source := &locks.Source{
		Cluster: cluster, Namespace: w.namespace, Fields: fields.OneTermEqualSelector("metadata.name", w.key.ObjectName()),
	}
	return func(ctx context.Context, states *lastState) error { return source.Follow(ctx, w.Clock, states) }, err
}

// ask reads the lock once, and then follows its changes, if the façade shows them.
func (w *wait) ask(ctx context.Context, backend lock.Backend, states *lastState) error {
	held, err := backend.Get(ctx, w.namespace, w.key)
	if err != nil && !errors.Is(err, lock.ErrNotHeld) {
		return err
	}
	states.set(held)
	changes, err := backend.Watch(ctx, w.namespace, w.key)
	if err != nil {
		return w.poll(ctx, backend, states)
	}
	for change := range changes {
		states.Changed(change.Lock, change.IsGone)
	}
	return ctx.Err()
}

func (w *wait) poll(ctx context.Context, backend lock.Backend, states *lastState) error {
	ticker := w.Clock.NewTicker(pollPeriod)
	defer ticker.Stop()
	for {
		held, err := backend.Get(ctx, w.namespace, w.key)
		if err != nil && !errors.Is(err, lock.ErrNotHeld) {
			return err
		}
		states.set(held)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
}

// await returns the lock when it is as it should be; nil if there is none.
func (w *wait) await(ctx context.Context, changed <-chan *v1alpha1.Lock, failed <-chan error) (*v1alpha1.Lock, error) {
	var overdue, expired <-chan time.Time
	if w.timeout > 0 {
		timer := w.Clock.NewTimer(w.timeout)
		defer timer.Stop()
		overdue = timer.C()
	}
	var held *v1alpha1.Lock
	isTold := false
	var expiry clock.Timer
	defer func() {
		if expiry != nil {
			expiry.Stop()
		}
	}()
	for {
		select {
		case err := <-failed:
			return nil, err
		case <-overdue:
			return nil, w.timedOut(held)
		case <-expired:
		case held = <-changed:
		}
		if !locks.IsHeld(held, w.Now()) && !w.wasHeld {
			if err := refusedKey(ctx, w.Session, locks.ID{Namespace: w.namespace, Key: w.key}); err != nil {
				return nil, err
			}
		}
		if locks.IsHeld(held, w.Now()) == (w.state == "held") {
			return held, nil
		}
		if locks.IsHeld(held, w.Now()) {
			if err := checkOwnHolder(w.Session, w.key, held); err != nil {
				return nil, failure.New(failure.Busy, err.Error(), "do not wait for it here: it ends after this command")
			}
		}
		if !isTold {
			w.tellWaiting(held)
			isTold = true
		}
		expired = nil
		if locks.IsHeld(held, w.Now()) {
			w.wasHeld = true
			if expiry != nil {
				expiry.Stop()
			}
			expiry = w.Clock.NewTimer(held.Spec.ExpireTime.Sub(w.Now()))
			expired = expiry.C()
		}
	}
}

// tellWaiting says what is waited for.
func (w *wait) tellWaiting(held *v1alpha1.Lock) {
	if held == nil || w.state == "held" {
		fmt.Fprintf(w.ErrOut, "waiting for %s to be %s\n", terminal.Visible(w.key.Bare()), w.state)
		return
	}
	fmt.Fprintf(w.ErrOut, "waiting: %s\n", heldBy(w.Times(), held, false))
}

func (w *wait) timedOut(held *v1alpha1.Lock) error {
	key := terminal.Visible(w.key.Bare())
	if w.state == "held" {
		return failure.New(failure.NotHeld, fmt.Sprintf("%s was not held within %s", key, human.For(w.timeout)),
			"see what waits for it: "+w.Command("who", w.key.Bare()))
	}
	what := fmt.Sprintf("%s is not known to be free after %s: there was no answer yet", key, human.For(w.timeout))
	if held != nil {
		what = fmt.Sprintf("%s is still held after %s, by %s", key, human.For(w.timeout), locks.HolderOf(held))
	}
	return failure.New(failure.Busy, what, "see who holds it, and what you may do: "+w.Command("who", w.key.Bare()), "wait longer, with a longer --timeout")
}

// lastState passes on the last state of one lock: nil if there is none.
type lastState struct {
	changed chan *v1alpha1.Lock
}

func (l *lastState) set(held *v1alpha1.Lock) {
	select {
	case <-l.changed:
	default:
	}
	l.changed <- held
}

// Listed implements [locks.Follower].
func (l *lastState) Listed(all []*v1alpha1.Lock) {
	if len(all) == 0 {
		all = []*v1alpha1.Lock{nil}
	}
	l.set(all[0])
}

// Failed implements [locks.Follower].
func (l *lastState) Failed(error) {}

// Changed implements [locks.Follower].
func (l *lastState) Changed(held *v1alpha1.Lock, isGone bool) {
	if isGone {
		held = nil
	}
	l.set(held)
}
