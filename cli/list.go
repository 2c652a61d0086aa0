package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/durations"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/human"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/lock"
)

// list is the command "list".
type list struct {
	*session.Session
	allNamespaces bool
	mine          bool
	holder        string
	expiring      time.Duration
	sortBy        string
	watch         bool
	noHeaders     bool
	output        output

	namespace string
	// identity is the user's own, with --mine.
	identity string
	// waiting has the Jobs that wait; nil if they are not known.
	waiting map[locks.ID][]locks.Job
	// callers counts those that wait through the façade; nil if they are not known. Others may wait unless areAll.
	callers map[locks.ID]int
	areAll  bool
}

// orders are what rows can be sorted by. All have namespace and key for the rest.
var orders = map[string]func(a, b *listed) int{
	"key":     func(*listed, *listed) int { return 0 },
	"holder":  func(a, b *listed) int { return strings.Compare(a.Holder, b.Holder) },
	"held":    func(a, b *listed) int { return a.Acquired.Compare(b.Acquired) },
	"expires": func(a, b *listed) int { return a.Expires.Compare(b.Expires) },
	"waiters": func(a, b *listed) int { return cmp.Compare(b.waiters, a.waiters) },
}

// listed is a lock in the list.
type listed struct {
	locks.Row
	waiters int
	// lock is kept only for the formats that print objects.
	lock *v1alpha1.Lock
}

func newList(s *session.Session) *cobra.Command {
	l := &list{Session: s}
	command := &cobra.Command{
		Use:        "list",
		SuggestFor: []string{"get", "ps", "show"},
		Aliases:    []string{"ls"},
		Short:      "List the locks that are held: by whom, for how long, and why",
		Long: `List the locks that are held: key, holder, for how long, when they expire unless
they are renewed, how many wait, and why they are held.

The holder is the object that the lock is held for, such as a Pod or a Job, or
else the service account or the user.

The waiters are Jobs or, with --server, the callers that wait at all replicas of the
façade. Without --server these do not show, so there is no 0: - is none that is
known, and 2+ at least two. Callers with a direct engine of the SDK are never counted.

Owner tokens are left out of all formats.`,
		Example: `  # The locks of a namespace, and of all
  kubectl lock list -n payments
  kubectl lock list -A

  # What I hold, and what a Job holds
  kubectl lock list --mine
  kubectl lock list --holder nightly

  # What ends within five minutes unless it is renewed, the next one first
  kubectl lock list --expiring 5m --sort expires

  # Go on with each lock that is acquired or released
  kubectl lock list -w

  # For scripts
  kubectl lock list -o jsonpath='{range .items[*]}{.spec.key}{"\n"}{end}'
  kubectl lock list -o custom-columns=KEY:.spec.key,UNTIL:.spec.expireTime`,
		Args: noArgs,
		RunE: func(command *cobra.Command, _ []string) error { return l.run(command.Context()) },
	}
	flags := command.Flags()
	flags.BoolVarP(&l.allNamespaces, "all-namespaces", "A", false, "List the locks of all namespaces.")
	flags.BoolVar(&l.mine, "mine", false, "List only the locks that I hold, by my identity")
	flags.StringVar(&l.holder, "holder", "", "List only the locks whose holder's name or identity has this text in it")
	durations.Var(flags, &l.expiring, "expiring", 0, "List only the locks that end within this time unless they are renewed, for example 5m")
	flags.StringVar(&l.sortBy, "sort", "key", "Sort by: "+strings.Join(slices.Sorted(maps.Keys(orders)), ", "))
	_ = command.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(slices.Sorted(maps.Keys(orders)), cobra.ShellCompDirectiveNoFileComp))
	flags.BoolVarP(&l.watch, "watch", "w", false, "Go on with each lock that is acquired, handed on or released; renewals are shown only by the formats that print objects")
	flags.BoolVar(&l.noHeaders, "no-headers", false, "Leave out the headers")
	l.output.addFlags(command)
	return command
}

func (l *list) run(ctx context.Context) error {
	if orders[l.sortBy] == nil {
		return failure.Usagef("--sort is %q, and must be one of %s", l.sortBy, strings.Join(slices.Sorted(maps.Keys(orders)), ", "))
	}
	if l.expiring < 0 {
		return failure.Usagef("--expiring is %s, and must not be negative", l.expiring)
	}
	if err := l.output.complete(); err != nil {
		return err
	}
	l.namespace = l.Namespace()
	if l.allNamespaces {
		l.namespace = ""
	}
	if l.UsesFacade() {
		return l.runFacade(ctx)
	}
	return l.runCluster(ctx)
}

func (l *list) runFacade(ctx context.Context) error {
	if l.watch || l.allNamespaces || l.mine {
		return failure.New(failure.Usage, "--watch, --all-namespaces and --mine need an API server, and --server names a façade",
			"leave out --server, and choose the cluster with --context or --kubeconfig")
	}
	backend, err := l.Backend(ctx)
	if err != nil {
		return err
	}
	held, err := backend.List(ctx, l.namespace, lock.Filter{})
	if err != nil {
		return err
	}
	if l.output.isTable() {
		l.countCallers(ctx, backend)
	}
	all := make([]*v1alpha1.Lock, 0, len(held))
	for index := range held {
		all = append(all, &held[index])
	}
	return l.print(l.rows(all))
}

func (l *list) countCallers(ctx context.Context, backend lock.Backend) {
	waiting, isComplete, err := callersThroughFacade(ctx, backend, l.namespace, "")
	if err != nil {
		fmt.Fprintf(l.ErrOut, "note: waiters are not counted: %s\n", terminal.Clean(err.Error()))
		return
	}
	l.callers, l.areAll = map[locks.ID]int{}, isComplete
	for index := range waiting {
		l.callers[locks.ID{Namespace: l.namespace, Key: waiting[index].FullKey()}]++
	}
}

func (l *list) runCluster(ctx context.Context) error {
	cluster, err := l.Cluster()
	if err != nil {
		return err
	}
	source := &locks.Source{Cluster: cluster, Namespace: l.namespace}
	if l.mine {
		user, err := l.User(ctx)
		if err != nil {
			return err
		}
		l.identity = user.Name
		source.Fields = fields.OneTermEqualSelector("spec.holder", l.identity)
	}
	// Waiters are a column of the table only.
	waiting := make(chan map[locks.ID][]locks.Job, 1)
	if l.output.isTable() {
		go func() {
			found, err := locks.WaitingJobs(ctx, cluster, l.namespace)
			if err != nil && !apierrors.IsForbidden(err) && ctx.Err() == nil {
				fmt.Fprintf(l.ErrOut, "note: waiting Jobs are not counted: %s\n", terminal.Clean(err.Error()))
			}
			waiting <- found
		}()
	} else {
		waiting <- nil
	}
	if l.watch {
		l.waiting = <-waiting
		return l.follow(ctx, source)
	}
	all, _, err := source.List(ctx)
	if err != nil {
		return err
	}
	rows := l.rows(all)
	l.waiting = <-waiting
	if len(rows) == 0 {
		if err := checkNamespace(ctx, l.Session, cluster, l.namespace); err != nil {
			return err
		}
	}
	return l.print(rows)
}

// rows returns the rows of the locks that the flags select.
func (l *list) rows(all []*v1alpha1.Lock) (rows []*listed) {
	for _, each := range all {
		if row := l.rowOf(each); l.selects(&row.Row, l.Now()) {
			rows = append(rows, row)
		}
	}
	return rows
}

func (l *list) rowOf(each *v1alpha1.Lock) *listed {
	row := &listed{Row: locks.RowOf(each)}
	if !l.output.isTable() {
		row.lock = each
	}
	return row
}

func (l *list) selects(row *locks.Row, now time.Time) bool {
	return row.IsHeld(now) &&
		(!l.mine || row.Identity == l.identity) &&
		(l.holder == "" || row.HeldBy(l.holder)) &&
		(l.expiring == 0 || row.Expires.Sub(now) <= l.expiring)
}

func (l *list) sort(rows []*listed) {
	for _, row := range rows {
		row.waiters = l.waitersOf(row)
	}
	by := orders[l.sortBy]
	slices.SortFunc(rows, func(a, b *listed) int {
		return cmp.Or(by(a, b), strings.Compare(a.Namespace, b.Namespace), strings.Compare(string(a.Key), string(b.Key)))
	})
}

func (l *list) waitersOf(row *listed) int { return len(row.Waiting(l.waiting)) + l.callers[row.ID] }

func (l *list) print(rows []*listed) error {
	l.sort(rows)
	if !l.output.isTable() {
		objects := make([]v1alpha1.Lock, 0, len(rows))
		for _, row := range rows {
			objects = append(objects, *row.lock)
		}
		return l.output.printList(l.Out, objects)
	}
	if len(rows) == 0 {
		fmt.Fprintln(l.ErrOut, l.nothing())
		return nil
	}
	return l.table().Write(l.Out, l.cells(rows))
}

func (l *list) nothing() string {
	where := "in any namespace"
	if !l.allNamespaces {
		where = "in namespace " + cmp.Or(l.namespace, "of the caller")
	}
	if l.mine || l.holder != "" || l.expiring != 0 {
		return "No such locks are held " + where + "."
	}
	return "No locks are held " + where + "."
}

func (l *list) table() *terminal.Table {
	columns := []terminal.Column{
		{Header: "KEY", Least: 16}, {Header: "HOLDER", Least: 16}, {Header: "HELD"}, {Header: "EXPIRES"}, {Header: "WAITERS"}, {Header: "REASON", Least: 6},
	}
	if l.output.isWide() {
		columns = append(columns, terminal.Column{Header: "TTL"}, terminal.Column{Header: "RENEWED"}, terminal.Column{Header: "TOKEN"}, terminal.Column{Header: "IDENTITY", Least: 16})
	}
	if l.allNamespaces {
		columns = slices.Insert(columns, 0, terminal.Column{Header: "NAMESPACE"})
	}
	return &terminal.Table{Columns: columns, Width: l.Terminal().Width, NoHeaders: l.noHeaders}
}

func (l *list) cells(rows []*listed) [][]string {
	times := l.Times()
	cells := make([][]string, 0, len(rows))
	for _, row := range rows {
		cells = append(cells, l.cellsOf(row, times))
	}
	return cells
}

func (l *list) cellsOf(row *listed, times human.Times) []string {
	cells := []string{
		row.Key.Bare(), row.HolderState(l.waiting), times.Since(row.Acquired), times.Left(row.Expires),
		locks.Waiters(l.waitersOf(row), l.areAll), row.Reason,
	}
	if l.output.isWide() {
		ttl := human.Never
		if row.TTL > 0 {
			ttl = human.For(row.TTL)
		}
		cells = append(cells, ttl, times.Ago(row.Renewed), strconv.FormatInt(row.FencingToken, 10), row.Identity)
	}
	if l.allNamespaces {
		cells = slices.Insert(cells, 0, row.Namespace)
	}
	return cells
}
