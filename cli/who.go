package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/describe"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
)

// who is the command "who".
type who struct {
	*session.Session
	auditFile string
}

func newWho(s *session.Session) *cobra.Command {
	w := &who{Session: s}
	command := &cobra.Command{
		Use:        "who KEY",
		SuggestFor: []string{"status", "describe", "get", "show", "info"},
		Short:      "Show everything about one lock: who holds it, is it alive, who waits, what you may do",
		Long: `Show everything about one lock: the holder and the Pod or Job behind it, since when
and why, who waits, what it guards, its history, and what you may do now with the
command to type.

Callers that wait through a façade are not stored in the cluster. With --server they
are shown: those of all its replicas, in the order in which they get the lock.

In place of the KEY, job/NAME and pod/NAME name the lock of that Job or Pod.

The history has the events of the lock: releases by force, and holders that have
ended. Grants and releases are in the audit, which the operator writes to its log;
give it with --audit.`,
		Example: `  # Who holds it?
  kubectl lock who billing:report -n payments

  # Which lock does the Job nightly hold or wait for?
  kubectl lock who job/nightly -n payments

  # With its history
  kubectl logs -n forrst-system -l app.kubernetes.io/name=lock-operator --tail=-1 \
    | kubectl lock who billing:report -n payments --audit -`,
		Args:              oneKey(s),
		ValidArgsFunction: completeKeys(s),
		RunE:              func(command *cobra.Command, args []string) error { return w.run(command.Context(), args[0]) },
	}
	command.Flags().StringVar(&w.auditFile, "audit", "", "File with the operator's log, whose audit records become part of the history; - for the standard input")
	return command
}

func (w *who) run(ctx context.Context, key string) error {
	named, err := targetOf(ctx, w.Session, key)
	if err != nil {
		return err
	}
	if kind, _, _ := locks.ObjectName(key); kind != "Job" {
		named.job = nil // The page of a Job that was named begins with what it has to do with its lock.
	}
	gather := w.gather
	if w.UsesFacade() {
		gather = w.gatherThroughFacade
	}
	facts, err := gather(ctx, named)
	if err != nil {
		return err
	}
	if facts.Lock == nil && facts.Job == nil {
		if err := refusedKey(ctx, w.Session, facts.ID); err != nil {
			return err
		}
	}
	if facts.Lock != nil {
		user, err := w.User(ctx)
		if err != nil && !w.UsesFacade() {
			facts.Unknown = append(facts.Unknown, "who you are: "+err.Error())
		}
		facts.IsMine, facts.HasProof = err == nil && user.Holds(facts.Lock), w.hasProof(facts)
	}
	return facts.Print(w.Out)
}

// hasProof reports whether the owner token of the grant is where acquire keeps it.
func (w *who) hasProof(facts *describe.Facts) bool {
	options := grantOptions{Session: w.Session, ownerFD: -1}
	place, err := options.place(facts.Key.Bare())
	if err != nil {
		return false
	}
	proof, err := place.Read()
	return err == nil && proof.Owner == facts.Lock.Spec.Owner
}

func (w *who) gather(ctx context.Context, named target) (*describe.Facts, error) {
	cluster, err := w.Cluster()
	if err != nil {
		return nil, err
	}
	records, err := w.audit()
	if err != nil {
		return nil, err
	}
	defer func() { _ = records.Close() }()
	facts, err := describe.Gather(ctx, w.Session, named.key, named.job, records)
	if err == nil && facts.Lock == nil && facts.Job == nil {
		err = checkNamespace(ctx, w.Session, cluster, w.Namespace())
	}
	return facts, err
}

func (w *who) gatherThroughFacade(ctx context.Context, named target) (*describe.Facts, error) {
	backend, err := w.Backend(ctx)
	if err != nil {
		return nil, err
	}
	held, err := backend.Get(ctx, w.Namespace(), named.key)
	if err != nil && !errors.Is(err, lock.ErrNotHeld) {
		return nil, err
	}
	facts := &describe.Facts{
		Session: w.Session, ID: locks.ID{Namespace: w.Namespace(), Key: named.key}, Lock: held,
		Unknown: []string{"a façade shows the lock and its line alone; without --server, there are Pods, waiting Jobs and events"},
	}
	callers, isComplete, err := callersThroughFacade(ctx, backend, w.Namespace(), named.key)
	facts.Callers, facts.AreMore = callers, err == nil && !isComplete
	if err != nil {
		facts.Unknown = append(facts.Unknown, "who waits: "+err.Error())
	}
	return facts, nil
}

// maxCallers is how many callers that wait are asked for.
const maxCallers = 500

// callersThroughFacade returns the callers that wait at all replicas of the façade, for a lock or, if key is empty, for
// any of the namespace, and whether they are all. They are not nil unless there is an error.
func callersThroughFacade(ctx context.Context, backend lock.Backend, namespace string, key v1alpha1.FullKey) (waiting []lock.Waiter, isComplete bool, err error) {
	line, ok := backend.(lock.LineReader)
	if !ok {
		return nil, false, errors.ErrUnsupported
	}
	waiting, isComplete, err = line.Waiters(ctx, namespace, key, maxCallers)
	if err != nil {
		return nil, false, err
	}
	return append([]lock.Waiter{}, waiting...), isComplete, nil
}

func (w *who) audit() (io.ReadCloser, error) {
	switch w.auditFile {
	case "":
		return io.NopCloser(strings.NewReader("")), nil
	case "-":
		return io.NopCloser(w.In), nil
	}
	file, err := os.Open(w.auditFile)
	if err != nil {
		return nil, failure.Usagef("--audit: %v", err)
	}
	return file, nil
}
