package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/freezing"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
)

// freezeOptions are the options of one "freeze".
type freezeOptions struct {
	*session.Session

	until     string
	reason    string
	key       string
	resources []string
	dryRun    string
}

func newFreeze(s *session.Session) *cobra.Command {
	options := freezeOptions{Session: s}
	command := &cobra.Command{
		Use:   "freeze [NAMESPACE] --until TIME",
		Short: "Freeze a namespace: until a time, only you change its workloads",
		Long: `Take a lock that guards the workloads of a namespace until a time. Until then only
you may create, change or delete them; other users and pipelines are refused, and
told who has frozen the namespace, until when and why. What Kubernetes itself does
goes on: pods are replaced, and Deployments go on rolling out.

The cluster needs guards, a part of lock-operator that is installed on demand, and
the namespace the label forrst.dev/guards=enabled. You need the rights to create,
update and delete all that is frozen.

To change the end or the reason of your freeze, freeze the namespace again.`,
		Example: `  # Freeze the namespace shop over the turn of the year
  kubectl lock freeze shop --until 2027-01-04T06:00:00Z --reason "Year-end change freeze"

  # Freeze Deployments only, for two hours
  kubectl lock freeze shop --until 2h --resources deployments.apps --reason "Moving the database"

  # End it early
  kubectl lock thaw shop`,
		Args:              oneNamespace,
		ValidArgsFunction: completeNamespaces(s),
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.until, "until", "", "When it ends: a length of time such as 36h or 3d, or a time such as 2027-01-04, 2027-01-04T06:00:00Z or 18:00. Required")
	flags.StringVar(&options.reason, "reason", "", "Why, which users are told who are refused")
	flags.StringVar(&options.key, "key", freezing.Key, "KEY of the lock")
	flags.StringSliceVar(&options.resources, "resources", nil, "What to freeze, such as deployments.apps,services. Default: "+freezing.Default())
	addDryRun(flags, &options.dryRun)
	return command
}

func (o *freezeOptions) run(ctx context.Context, args []string) error {
	if err := checkDryRun(o.dryRun); err != nil {
		return err
	}
	if o.until == "" {
		return failure.New(failure.Usage, "say when the freeze ends", "add --until, such as --until 36h or --until 2027-01-04")
	}
	if err := v1alpha1.ValidateKey(o.key); err != nil {
		return failure.Usagef("--key %v", err)
	}
	guards, err := freezing.Guards(o.resources)
	if err != nil {
		return failure.Usagef("--resources: %v", err)
	}
	namespace := namespaceOf(o.Session, args)
	cluster, err := o.Cluster()
	if err != nil {
		return err
	}
	until, err := freezing.ParseUntil(o.until, o.Now().In(o.Clock.Now().Location()))
	if err != nil {
		return failure.Usagef("--until: %v", err)
	}
	end := v1alpha1.NewTimestamp(until)
	freeze := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.FullKeyOf(o.key).ObjectName()},
		Spec:       v1alpha1.LockSpec{Key: o.key, ExpireTime: &end, Reason: o.reason, Guards: guards},
	}
	err = dryRunOf(cluster, o.dryRun).Create(ctx, freeze)
	switch {
	case err == nil:
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, v1alpha1.CauseTypeHeld):
		if freeze, err = o.change(ctx, cluster, freeze, err); err != nil {
			return err
		}
	default:
		return o.explain(namespace, err)
	}
	o.tell(freeze, until)
	return nil
}

// change sets the end and the reason of the caller's own freeze, which is there already.
func (o *freezeOptions) change(ctx context.Context, cluster client.Client, wanted *v1alpha1.Lock, refused error) (*v1alpha1.Lock, error) {
	current := &v1alpha1.Lock{}
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(wanted), current); err != nil {
		return nil, errors.Join(err, refused)
	}
	switch {
	case !ownsLock(ctx, o.Session, current):
		ends := o.Times().In(locks.RowOf(current).Expires)
		what := fmt.Sprintf("%s has frozen namespace %s; that ends %s", terminal.Clean(current.Spec.Holder), current.Namespace, ends)
		if len(current.Spec.Guards) == 0 {
			what = fmt.Sprintf("%s is held by %s; it ends %s unless it is renewed", keyOf(current), terminal.Clean(current.Spec.Holder), ends)
		}
		return nil, failure.New(failure.Busy, what, "freeze the namespace by a second lock: add --key, such as --key freeze-2", "see more: "+o.Kubectl("lock", "who", o.key, "-n", current.Namespace))
	case len(current.Spec.Guards) == 0:
		return nil, failure.New(failure.Busy, fmt.Sprintf("you hold %s, which guards nothing", keyOf(current)), "choose another key by --key")
	case o.resources != nil && freezing.Resources(current.Spec.Guards) != freezing.Resources(wanted.Spec.Guards):
		return nil, failure.New(failure.Busy, "your freeze guards other resources, which cannot change while it lasts: "+freezing.Resources(current.Spec.Guards),
			"thaw the namespace first: "+o.Command("thaw", current.Namespace), "freeze the others by a second lock: add --key")
	}
	next := current.DeepCopy()
	next.Spec.ExpireTime, next.Spec.TTL = wanted.Spec.ExpireTime, nil
	if o.reason != "" {
		next.Spec.Reason = o.reason
	}
	return next, dryRunOf(cluster, o.dryRun).Patch(ctx, next, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{}))
}

func (o *freezeOptions) tell(freeze *v1alpha1.Lock, until time.Time) {
	done := ""
	if o.dryRun == "server" {
		done = " (server dry run)"
	}
	fmt.Fprintf(o.Out, "namespace %s is frozen until %s, %s%s\n", freeze.Namespace, until.Format("2006-01-02 15:04:05 MST"), o.Times().In(until), done)
	fmt.Fprintf(o.Out, "only %s may write %s there\n", terminal.Clean(freeze.Spec.Holder), freezing.Resources(freeze.Spec.Guards))
}

// explain says what to do where guards are not installed or not in force.
func (o *freezeOptions) explain(namespace string, err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "are not enforced in namespace"):
		return failure.New(failure.Refused, fmt.Sprintf("namespace %s has not opted in to guards, so a freeze would have no effect", namespace),
			"have it labelled: "+o.Kubectl("label", "namespace", namespace, v1alpha1.GuardsLabel+"="+v1alpha1.GuardsEnabled))
	case strings.Contains(text, "are not enforced"):
		return failure.New(failure.Refused, "guards are not installed in this cluster, so a freeze would have no effect",
			"have the component config/guards of lock-operator installed",
			"a lock without guards holds back only those who ask for it: "+o.Kubectl("lock", "acquire", o.key, "--ttl", "24h", "-n", namespace))
	case strings.Contains(text, "may not be guarded"):
		return failure.New(failure.Refused, text, "name what may be guarded in this cluster by --resources")
	case strings.Contains(text, "you need the rights to create, update and delete"):
		return failure.New(failure.Refused, text, "freeze only what you may change, by --resources", "have a role such as edit bound in the namespace")
	}
	return err
}

// oneNamespace says what is wrong with the arguments of a command of at most one NAMESPACE.
func oneNamespace(command *cobra.Command, args []string) error {
	if len(args) <= 1 {
		return nil
	}
	return failure.New(failure.Usage, fmt.Sprintf("%s takes at most one NAMESPACE, and was given %d arguments", command.CommandPath(), len(args)),
		"see "+command.CommandPath()+" --help")
}

// namespaceOf returns the namespace of the arguments, or of the session if they have none.
func namespaceOf(s *session.Session, args []string) string {
	if len(args) == 0 {
		return s.Namespace()
	}
	return args[0]
}

// dryRunOf returns a client whose writes are dry runs, if the flag says so.
func dryRunOf(cluster client.Client, dryRun string) client.Client {
	if dryRun == "server" {
		return client.NewDryRunClient(cluster)
	}
	return cluster
}
