package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/describe"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/freeing"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/jobs"
)

// freeOptions are the options of one "free".
type freeOptions struct {
	*session.Session

	reason string
	isSure bool
	dryRun string
}

func newFree(s *session.Session) *cobra.Command {
	options := freeOptions{Session: s}
	command := &cobra.Command{
		Use:        "free KEY",
		SuggestFor: []string{"unlock", "break", "delete", "force-release"},
		Short:      "End a lock: your own, or by force that of another holder",
		Long: `Show who holds a lock, ask whether to go on, and end it.

To end the lock of another holder you need the verb force-release on locks.forrst.dev
in the namespace, and a --reason, which goes on record. The holder may go on working
until it notices, at its next renewal: stop it first, or be sure that what the lock
protects checks fencing tokens.

A Job that runs under the lock is suspended, its Pods are deleted, and it queues
again, behind those that wait. The next Job gets the lock at once, and starts when
those Pods have ended. A Job that has the lock and has not started only takes it again.

The KEY may be job/NAME, if that Job holds the lock.

Only what was shown is ended. If another holder has got the lock meanwhile, nothing
is done, and the exit status is 202. If you do not answer yes, it is 200.`,
		Example: `  # See what would happen
  kubectl lock free billing:report --dry-run

  # End it
  kubectl lock free billing:report --reason "worker-7 lost its disk"`,
		Args:              oneKey(s),
		ValidArgsFunction: completeKeys(s),
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args[0])
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.reason, "reason", "", "Why you take the lock from its holder. Required unless the lock is yours; the release of your own goes without")
	flags.BoolVarP(&options.isSure, "yes", "y", false, "Do not ask")
	addDryRun(flags, &options.dryRun)
	return command
}

// addDryRun adds the flag, which [checkDryRun] checks.
func addDryRun(flags *pflag.FlagSet, value *string) {
	flags.StringVar(value, "dry-run", "none", "none or server. Without a value: server. The API server says whether you may, and nothing is done")
	flags.Lookup("dry-run").NoOptDefVal = "server"
}

func checkDryRun(value string) error {
	switch value {
	case "none", "server":
		return nil
	case "client":
		return failure.New(failure.Usage, "--dry-run=client is not possible: only the API server knows what you may do", "have it say so, and do nothing: --dry-run=server")
	}
	return failure.Usagef("--dry-run is %q, and may be none or server", value)
}

func (o *freeOptions) run(ctx context.Context, key string) error {
	if err := checkDryRun(o.dryRun); err != nil {
		return err
	}
	if o.UsesFacade() {
		return o.runFacade(ctx, key)
	}
	cluster, err := o.Cluster()
	if err != nil {
		return err
	}
	named, err := o.target(ctx, key)
	if err != nil {
		return err
	}
	key = named.key.Bare()
	shown, err := o.held(ctx, cluster, locks.ID{Namespace: o.Namespace(), Key: named.key})
	if err != nil {
		return err
	}
	if named.job != nil && !named.job.Holds(shown) {
		return failure.New(failure.NotHeld, fmt.Sprintf("Job %s does not hold %s; %s does", named.job.Name, keyOf(shown), loser(shown)),
			"see both: "+o.Command("who", "job/"+named.job.Name))
	}
	isOwn := ownsLock(ctx, o.Session, shown)
	facts := describe.GatherHolder(ctx, o.Session, cluster, shown)
	o.show(shown, isOwn, facts.Alive())
	if err := o.confirm(key, isOwn, consequence(facts)); err != nil {
		return err
	}
	order := freeing.Order{Shown: shown, IsDryRun: o.dryRun == "server"}
	if !isOwn {
		order.Reason = o.reason
		if order.IsDryRun && strings.TrimSpace(o.reason) == "" {
			order.Reason = "dry run"
		}
	}
	if err := order.Carry(ctx, cluster); err != nil {
		return o.explain(key, err)
	}
	o.tell(shown, isOwn)
	return nil
}

// target is targetOf. Without a question, a full key is not taken as another key: the lock with that very KEY may just
// have ended.
func (o *freeOptions) target(ctx context.Context, argument string) (target, error) {
	named, err := targetOf(ctx, o.Session, argument)
	if err == nil && strings.HasPrefix(argument, fullKeyPrefix) && named.key != v1alpha1.FullKeyOf(argument) && o.isSure && o.dryRun == "none" {
		bare := named.key.Bare()
		return named, failure.New(failure.Usage, fmt.Sprintf("%s is a full key, which is not freed with --yes", argument), "give the KEY: "+o.Command("free", bare))
	}
	return named, err
}

// runFacade ends a lock through a façade, which does not tell whose the lock is. The grant is compared just before, to tell
// who else holds the lock by now; the façade judges it once more.
func (o *freeOptions) runFacade(ctx context.Context, key string) error {
	if o.dryRun != "none" {
		return failure.New(failure.Usage, "a façade knows no dry run", "leave out --server to ask the API server", "leave out --dry-run, and answer no")
	}
	backend, err := o.Backend(ctx)
	if err != nil {
		return err
	}
	namespace := o.Namespace()
	named, err := o.target(ctx, key)
	if err != nil {
		return err
	}
	fullKey := named.key
	key = fullKey.Bare()
	shown, err := backend.Get(ctx, namespace, fullKey)
	if errors.Is(err, lock.ErrNotHeld) {
		err = cmp.Or(refusedKey(ctx, o.Session, locks.ID{Namespace: namespace, Key: fullKey}), err)
	}
	if err != nil {
		return o.explain(key, err)
	}
	o.show(shown, false, nil)
	if err := o.confirm(key, false, goesOn); err != nil {
		return err
	}
	current, err := backend.Get(ctx, namespace, fullKey)
	switch {
	case errors.Is(err, lock.ErrNotHeld):
		return o.explain(key, freeing.ErrGone)
	case err != nil:
		return err
	case !current.Spec.AcquireTime.Equal(shown.Spec.AcquireTime):
		return o.explain(key, fmt.Errorf("%w, to %q", freeing.ErrAnotherGrant, current.Spec.Holder))
	}
	token, _ := shown.FencingToken()
	err = lock.NewClient(backend, namespace).ForceRelease(ctx, key, o.reason, lock.WithFencingToken(token))
	switch {
	case errors.Is(err, lock.ErrNotHeld): // Another grant may hold the lock; a façade does not tell.
		return failure.New(failure.NotHeld, fmt.Sprintf("the grant of %s that was shown has ended meanwhile; nothing was done", terminal.Visible(key)),
			"see who holds it now: "+o.Command("who", key))
	case err != nil:
		return o.explain(key, err)
	}
	o.tell(shown, false)
	return nil
}

// held returns the lock if it is held.
func (o *freeOptions) held(ctx context.Context, cluster client.Client, named locks.ID) (*v1alpha1.Lock, error) {
	key, found := named.Key.Bare(), &v1alpha1.Lock{}
	err := cluster.Get(ctx, client.ObjectKey{Namespace: named.Namespace, Name: named.Key.ObjectName()}, found)
	switch {
	case apierrors.IsNotFound(err):
		if err := checkNamespace(ctx, o.Session, cluster, named.Namespace); err != nil {
			return nil, err
		}
		if err := refusedKey(ctx, o.Session, named); err != nil {
			return nil, err
		}
		notHeld := failure.From(o.explain(key, lock.ErrNotHeld), o.Command("doctor"))
		notHeld.Do = append(whereElse(ctx, o.Session, cluster, named), notHeld.Do...)
		return nil, notHeld
	case err != nil:
		return nil, err
	case found.Spec.ExpireTime != nil && !found.Spec.ExpireTime.After(o.Now()):
		return nil, o.explain(key, lock.ErrExpired)
	}
	return found, nil
}

// keyOf returns the KEY of a lock for people to read.
func keyOf(held *v1alpha1.Lock) string { return terminal.Visible(held.Spec.FullKey().Bare()) }

// loser is who loses a lock: the object that it is held for, such as Job/nightly, or else the user.
func loser(held *v1alpha1.Lock) string {
	if held.Spec.HolderRef != nil {
		return terminal.Clean(locks.HolderOf(held))
	}
	return terminal.Clean(held.Spec.Holder)
}

// ownsLock reports whether the caller is the holder. If that is not known, the lock counts as another
// holder's: then the API server decides.
func ownsLock(ctx context.Context, s *session.Session, held *v1alpha1.Lock) bool {
	user, err := s.User(ctx)
	return err == nil && user.Holds(held)
}

// show tells who would lose the lock, and whether that holder is alive.
func (o *freeOptions) show(held *v1alpha1.Lock, isOwn bool, alive []string) {
	times, spec := o.Times(), &held.Spec
	yours := ""
	if isOwn {
		yours = " (you)"
	}
	fmt.Fprintf(o.ErrOut, "%s\n  held by  %s%s\n", keyOf(held), loser(held), yours)
	if spec.HolderRef != nil {
		fmt.Fprintf(o.ErrOut, "  through  %s\n", terminal.Clean(spec.Holder))
	}
	for index, line := range alive {
		label := "alive"
		if index > 0 {
			label = ""
		}
		fmt.Fprintf(o.ErrOut, "  %s%s\n", terminal.Pad(label, 9), terminal.Clean(line))
	}
	if spec.AcquireTime != nil && spec.RenewTime != nil && spec.ExpireTime != nil {
		fmt.Fprintf(o.ErrOut, "  since    %s; renewed: %s; ends %s\n", times.Ago(spec.AcquireTime.Time),
			times.Renewed(spec.AcquireTime.Time, spec.RenewTime.Time), times.In(spec.ExpireTime.Time))
	}
	if len(spec.Guards) > 0 {
		fmt.Fprintf(o.ErrOut, "  guards   %d kinds of objects, which other users may write again then\n", len(spec.Guards))
	}
	if spec.Reason != "" {
		fmt.Fprintf(o.ErrOut, "  reason   %s\n", terminal.Clean(spec.Reason))
	}
}

// goesOn is what follows where nothing stops the holder.
const goesOn = "The holder may go on working until it notices."

// consequence says what follows once the lock is taken from its holder: the operator stops a Job that runs
// under the lock, and starts the next one when that has no Pods left.
func consequence(facts *describe.Facts) string {
	if facts.Holder == nil || facts.Holder.Job == nil || !facts.Holder.Job.Holds(facts.Lock) {
		return goesOn
	}
	job := facts.Holder.Job
	switch {
	case job.Phase == jobs.Waiting && len(facts.Stopping) > 0:
		return fmt.Sprintf("Job %s has not started. To free its lock does not help: it only takes it again, and waits for the same Pods.", job.Name)
	case job.Phase == jobs.Waiting:
		return fmt.Sprintf("Job %s has not started. It only takes the lock again.", job.Name)
	case facts.HolderHasNoPods():
		return fmt.Sprintf("The operator suspends Job %s, which has no Pods now; it queues again, behind the Jobs that wait.", job.Name)
	}
	next := "The next Job starts when these Pods have ended"
	if len(facts.Waiting) > 0 {
		next = fmt.Sprintf("Next: Job %s, which starts when these Pods have ended", facts.Waiting[0].Name)
	}
	return fmt.Sprintf("The operator suspends Job %s and deletes its Pods; it queues again, behind the Jobs that wait.\n%s, and not before: on a dead node, they do not end by themselves.", job.Name, next)
}

// confirm asks whether to go on. The consequence is what follows from a release by force.
func (o *freeOptions) confirm(key string, isOwn bool, consequence string) error {
	question := "Release it?"
	if !isOwn {
		if strings.TrimSpace(o.reason) == "" && o.dryRun != "server" {
			return failure.New(failure.Usage, "another holder has the lock; to take it away, say why, which goes on record",
				o.Command("free", key, "--reason", "..."), "ask the holder to release it, or wait: "+o.Command("wait", key))
		}
		question = "Take it from its holder by force?"
		fmt.Fprintln(o.ErrOut, consequence)
	}
	if o.isSure || o.dryRun == "server" {
		return nil
	}
	fmt.Fprintf(o.ErrOut, "%s [y/N] ", question)
	answer, err := bufio.NewReader(io.LimitReader(o.In, 64)).ReadString('\n')
	if file, ok := o.In.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		fmt.Fprintln(o.ErrOut) // An answer that is not typed does not end the line.
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	case "":
		if err != nil {
			return failure.New(failure.Failed, "the question was not answered; nothing was done", "to go on without a question, add --yes")
		}
	}
	fmt.Fprintln(o.ErrOut, "nothing was done")
	return failure.SilentError(failure.Failed)
}

// tell says what was done.
func (o *freeOptions) tell(held *v1alpha1.Lock, isOwn bool) {
	done := "released"
	if !isOwn {
		done = fmt.Sprintf("taken from %s by force", loser(held))
	}
	if o.dryRun == "server" {
		done += " (server dry run)"
	}
	fmt.Fprintf(o.Out, "%s %s\n", keyOf(held), done)
}

func (o *freeOptions) explain(key string, err error) error {
	shown := terminal.Visible(key)
	switch {
	case errors.Is(err, lock.ErrExpired):
		return failure.New(failure.NotHeld, fmt.Sprintf("%s has expired; the next caller can take it, and there is nothing to free", shown))
	case errors.Is(err, lock.ErrNotHeld), errors.Is(err, freeing.ErrGone):
		return failure.New(failure.NotHeld, fmt.Sprintf("%s is not held", shown), "see the locks that are held: "+o.Command("list"))
	case errors.Is(err, freeing.ErrAnotherGrant):
		return failure.New(failure.NotHeld, err.Error()+"; nothing was done to it", "see who holds it now: "+o.Command("who", key))
	case errors.Is(err, freeing.ErrBusy):
		return failure.New(failure.Failed, fmt.Sprintf("%s was not freed: %v", shown, err), "try again")
	case errors.Is(err, freeing.ErrKept):
		return failure.New(failure.Failed, fmt.Sprintf("%s: %v", shown, err),
			"the operator ends the lock at its expiry all the same; see the object: "+o.Kubectl("get", "locks.forrst.dev", v1alpha1.FullKeyOf(key).ObjectName(), "-n", o.Namespace(), "-o", "yaml"))
	case apierrors.HasStatusCause(err, v1alpha1.CauseTypeHeld):
		return failure.New(failure.Refused, err.Error(), "ask the holder to release it, or wait: "+o.Command("wait", key),
			"have the cluster role lock-operator-admin bound in the namespace: it has the verb force-release")
	}
	return err
}
