package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/durations"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/supervise"
	"forrst.dev/lock-operator/lock"
)

// What the command of "run" is told in its environment.
const (
	keyVariable          = "FORRST_LOCK_KEY"
	keysVariable         = "FORRST_LOCK_KEYS"
	tokenFileVariable    = "FORRST_LOCK_TOKEN_FILE"
	fencingTokenVariable = "FORRST_LOCK_FENCING_TOKEN"
)

// What --on-busy can be.
const (
	busyWait = "wait"
	busySkip = "skip"
	busyFail = "fail"
)

// runOptions are the options of one "run".
type runOptions struct {
	session *session.Session
	keys    []string
	program []string

	ttl, wait, grace time.Duration
	onBusy, onLost   string
	reason           string
	conflictCode     int

	policy supervise.Policy
	// own is this run, without a key and its fencing token.
	own outerRun
	// stoppedFor is the key of the lock for which the command was stopped, if it was.
	stoppedFor string
}

func newRun(s *session.Session) *cobra.Command {
	o := &runOptions{session: s}
	command := &cobra.Command{
		Use:   "run KEY... [flags] -- COMMAND [ARGS...]",
		Short: "Run a command while holding a lock, or several",
		Long: `Run a command while holding a lock.

The lock is renewed until the command has ended, and is then released. When the
lock is lost or cannot be renewed, the command gets TERM, and KILL before another
holder can have the lock. A release by force ends it by KILL at once: another holder
may have the lock already. So does the end of this program by KILL. All of this goes
for the process group of the command: a process that leaves it is not ended.

Up to 16 KEYs may be given: each word before the -- is one, so put a KEY with spaces in
quotation marks. The command then runs while all their locks are held: run takes all of
them or none, --wait bounds all waits together, and the loss of one lock counts as the
loss of all.

The command has the terminal and gets all signals. The exit status is its own,
or 128+n if signal n ended it, and else one of

  126  the command cannot be executed    203  no answer from the cluster or the façade
  127  the command was not found         204  refused, or not permitted
  200  another failure                   205  wrong arguments
  201  the lock is held                  206  the command could not be prepared
  202  the lock was lost

The command finds in its environment FORRST_LOCK_KEY; FORRST_LOCK_FENCING_TOKEN,
which grows with every holder and lets a receiver refuse late writes; and
FORRST_LOCK_TOKEN_FILE, a file with the secret that renews or releases the lock.
With several KEYs, it finds FORRST_LOCK_KEYS, with one key on each line, in place of
FORRST_LOCK_KEY, and no token file. FORRST_LOCK_FENCING_TOKEN then fences all of the
locks.`,
		Example: `  # Never run two backups at a time
  kubectl lock run backup -- ./backup.sh

  # Leave it out if another one is running
  kubectl lock run backup --on-busy skip -- ./backup.sh

  # Wait for up to 10 minutes, and give the command 20 seconds to clean up if the lock is lost
  kubectl lock run deploy:shop --wait 10m --ttl 1m --grace 20s -- helm upgrade shop ./chart

  # Hold the locks of the shop and of its database at the same time
  kubectl lock run deploy:shop db:shop -- ./migrate.sh`,
		Args: func(command *cobra.Command, args []string) error {
			dash := command.ArgsLenAtDash()
			if dash < 0 || dash == len(args) {
				return failure.New(failure.Usage, command.CommandPath()+" needs a command behind --", s.Command("run", "KEY", "--", "COMMAND"))
			}
			return newKeys(s)(command, args[:dash])
		},
		ValidArgsFunction: completeRun(s),
		RunE: func(command *cobra.Command, args []string) error {
			dash := command.ArgsLenAtDash()
			o.keys, o.program = args[:dash], args[dash:]
			if err := o.complete(command); err != nil {
				return err
			}
			return o.run(command.Context())
		},
	}
	flags := command.Flags()
	durations.Var(flags, &o.ttl, "ttl", lock.DefaultTTL, "How soon the lock ends if this program dies; renewed at each third of it. At least 2s")
	durations.VarOrForever(flags, &o.wait, "wait", 0, "How long to wait at most for the holder of the lock. Default: without a limit")
	flags.StringVar(&o.onBusy, "on-busy", busyWait, "If the lock is held: wait for it, skip the command and succeed, or fail")
	_ = command.RegisterFlagCompletionFunc("on-busy", cobra.FixedCompletions([]cobra.Completion{busyWait, busySkip, busyFail}, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&o.onLost, "on-lost", string(supervise.OnLostKill), "If the lock is lost: kill the command (TERM, then KILL), only send TERM (term), or ignore it. With term and ignore, two holders may run at a time")
	durations.Var(flags, &o.grace, "grace", -1, "Time between TERM and KILL if the lock is about to be lost, taken from the ttl. Default: a quarter of the ttl, at most 10s")
	flags.Lookup("grace").DefValue = "0" // It is not shown.
	flags.StringVar(&o.reason, "reason", "", "Why the lock is held, for people. Default: the name of the command and of the machine, and the PID")
	flags.IntVar(&o.conflictCode, "conflict-exit-code", int(failure.Busy), "Exit status if the lock is held, 0 to 255. Not with --on-busy skip, which ends with 0")
	return command
}

// complete checks what the flags say.
func (o *runOptions) complete(command *cobra.Command) error {
	if err := o.completeOnBusy(command.Flags()); err != nil {
		return err
	}
	switch {
	case o.wait < 0:
		return failure.Usagef("--wait is %s, and must not be negative", o.wait)
	case o.conflictCode < 0 || o.conflictCode > 255:
		return failure.Usagef("--conflict-exit-code is %d, and must be from 0 to 255", o.conflictCode)
	case command.Flags().Changed("grace") && o.grace < 0:
		return failure.Usagef("--grace is %s, and must not be negative", o.grace)
	case !command.Flags().Changed("wait"):
		o.wait = lock.WaitForever
	}
	if o.onBusy != busyWait {
		o.wait = 0
	}
	if o.reason == "" {
		// Arguments may hold secrets.
		o.reason = fmt.Sprintf("%s, PID %d", defaultReason("run "+filepath.Base(o.program[0])), os.Getpid())
	}
	if o.ttl < supervise.MinTTL {
		return failure.Usagef("--ttl is %s, and must be at least %s", o.ttl, supervise.MinTTL)
	}
	var err error
	if o.policy, err = supervise.NewPolicy(supervise.OnLostKill, o.ttl, o.grace); err != nil {
		return failure.New(failure.Usage, "--grace: "+err.Error(), "see "+command.CommandPath()+" --help")
	}
	if o.policy, err = supervise.NewPolicy(supervise.OnLost(o.onLost), o.ttl, o.grace); err != nil {
		return failure.New(failure.Usage, "--on-lost: "+err.Error(), "see "+command.CommandPath()+" --help")
	}
	return nil
}

// completeOnBusy checks --on-busy and what goes with it.
func (o *runOptions) completeOnBusy(flags *pflag.FlagSet) error {
	switch o.onBusy {
	case busyWait:
	case busySkip, busyFail:
		if flags.Changed("wait") {
			return failure.New(failure.Usage, fmt.Sprintf("--wait has no meaning with --on-busy %s", o.onBusy), "leave one of them out")
		}
		if o.onBusy == busySkip && flags.Changed("conflict-exit-code") {
			return failure.New(failure.Usage, "--conflict-exit-code has no meaning with --on-busy skip, which ends with 0",
				fmt.Sprintf("to end with %d without a wait, use --on-busy fail", o.conflictCode))
		}
	default:
		return failure.Usagef("--on-busy is %q, and must be %s, %s or %s", o.onBusy, busyWait, busySkip, busyFail)
	}
	return nil
}

func (o *runOptions) run(ctx context.Context) error {
	supervisor := supervise.New(supervise.NewClock())
	defer supervisor.Close()
	// Before a lock is taken.
	path, err := exec.LookPath(o.program[0])
	if err != nil {
		return cannotExecute(err, o.notTaken())
	}
	var held *runLocks
	err = supervisor.Prepare(ctx, func(ctx context.Context) (err error) {
		held, err = o.acquire(ctx)
		return err
	})
	if err != nil {
		if held != nil {
			_ = held.release(ctx)
		}
		return o.notAcquired(ctx, err)
	}
	outcome, err := o.runHolding(supervisor, path, held)
	endings := held.release(ctx)
	if err != nil {
		return o.notStarted(err, endings)
	}
	return o.result(outcome, endings)
}

func (o *runOptions) acquire(ctx context.Context) (*runLocks, error) {
	backend, err := o.session.Backend(ctx)
	if err != nil {
		return nil, err
	}
	if o.own, err = newOuterRun(o.session, ""); err != nil {
		return nil, err
	}
	options := []lock.Option{lock.WithTTL(o.ttl), lock.WithReason(o.reason), lock.WithClock(o.session.Clock)}
	if len(o.keys) > 1 {
		all, err := takeAll(ctx, o.session, backend, o.keys, o.wait, options...)
		if err != nil {
			return nil, err
		}
		return &runLocks{all.Locks(), all.FencingToken(), o.session.Clock}, nil
	}
	held, err := take(ctx, o.session, lock.NewClient(backend, o.session.Namespace(), options...), o.keys[0], o.wait)
	if err != nil {
		return nil, err
	}
	return &runLocks{[]*lock.Held{held}, held.FencingToken(), o.session.Clock}, nil
}

func (o *runOptions) notTaken() string {
	if len(o.keys) > 1 {
		return "none of " + strings.Join(o.keys, ", ") + " was taken"
	}
	return o.keys[0] + " was not taken"
}

// notAcquired is the result of a run without the lock.
func (o *runOptions) notAcquired(ctx context.Context, err error) error {
	if interrupted, ok := errors.AsType[*supervise.SignalError](err); ok {
		return failure.SilentError(interrupted.Status())
	}
	if len(o.keys) > 1 && errors.Is(err, lock.ErrNotHeld) {
		return failure.New(failure.NotHeld, err.Error(), "run it again")
	}
	if !errors.Is(err, lock.ErrHeld) {
		return err
	}
	if o.onBusy == busySkip {
		fmt.Fprintf(o.session.ErrOut, "skipped: %s\n", busy(ctx, o.session, err))
		return nil
	}
	if o.conflictCode == 0 {
		fmt.Fprintf(o.session.ErrOut, "%s\n", busy(ctx, o.session, err))
		return nil
	}
	key := o.keys[0]
	if held, isKnown := errors.AsType[*lock.HeldError](err); isKnown {
		key = held.Key.Bare()
	}
	what, do := busy(ctx, o.session, err), "see the holder: "+o.session.Command("who", key)
	if own, isOwn := errors.AsType[*ownHolderError](err); isOwn {
		what, do = own.Error(), "run COMMAND without kubectl lock run: it is under the lock already"
		if len(o.keys) > 1 {
			do = "leave out that KEY: COMMAND is under its lock already"
		}
	}
	return failure.New(failure.Code(o.conflictCode), what, do)
}

// runHolding runs the command. Afterwards nothing of its process group is left.
func (o *runOptions) runHolding(supervisor *supervise.Supervisor, path string, held *runLocks) (supervise.Outcome, error) {
	// Under another run, they have the values of that one: programs differ in which of two they take.
	environment := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == keyVariable || name == keysVariable || name == tokenFileVariable || name == fencingTokenVariable || name == outerVariable
	})
	runs := outerRuns(o.session)
	for _, each := range held.held {
		own := o.own
		own.Key, own.FencingToken = each.Key().Bare(), each.FencingToken()
		runs = append(runs, own)
	}
	encoded, err := json.Marshal(runs)
	if err != nil {
		return supervise.Outcome{}, err
	}
	environment = append(environment, outerVariable+"="+string(encoded))
	var folder string
	if len(o.keys) > 1 {
		environment = append(environment, keysVariable+"="+strings.Join(o.keys, "\n"))
	} else {
		var file string
		if folder, file, err = o.writeToken(held.held[0]); err != nil {
			return supervise.Outcome{}, err
		}
		defer os.RemoveAll(folder) //nolint:errcheck // the token has no power after the release
		environment = append(environment, keyVariable+"="+o.keys[0], tokenFileVariable+"="+file)
	}
	environment = append(environment, fencingTokenVariable+"="+strconv.FormatInt(held.fencingToken, 10))
	command := supervise.Command{Path: path, Args: o.program, Env: environment, Scratch: folder}
	return supervisor.Run(command, held, o.policy, func(stage supervise.Stage, cause error) {
		first := held.byTime()[0]
		if errors.Is(cause, supervise.ErrHoldEnded) {
			o.stoppedFor = first.Key().Bare()
		}
		fmt.Fprintf(o.session.ErrOut, "%s\n", whyStopping(stage, cause, first))
	})
}

// whyStopping says what is done to the command, and why. First is the lock that has ended, or ends first.
func whyStopping(stage supervise.Stage, cause error, first *lock.Held) string {
	what := "sending TERM to the command: "
	if stage == supervise.StageKill {
		what = "killing the command: "
	}
	switch {
	case cause == nil:
		return "the command has ended; killing what it has left in its process group"
	case errors.Is(cause, supervise.ErrHoldEnded):
		return what + whyLost(first.Key(), first.Err())
	}
	return what + cause.Error()
}

// whyLost says why a lock is lost, or about to be if there is no error yet. The deletion of one's own lock is
// not told from that of another user.
func whyLost(key v1alpha1.FullKey, err error) string {
	switch {
	case errors.Is(err, lock.ErrForceReleased):
		return key.Bare() + " was released by you or by force"
	case err == nil:
		return key.Bare() + " could not be renewed in time"
	}
	return err.Error()
}

// writeToken writes the secret of the lock to a file in a folder that only this user can enter.
func (o *runOptions) writeToken(held *lock.Held) (folder, file string, err error) {
	parent := o.session.Getenv("XDG_RUNTIME_DIR") // in memory, and emptied when the user logs out
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		parent = ""
	}
	folder, err = os.MkdirTemp(parent, "kubectl-lock-")
	if err != nil && parent != "" {
		folder, err = os.MkdirTemp("", "kubectl-lock-")
	}
	if err != nil {
		return "", "", fmt.Errorf("make a folder for the token: %w", err)
	}
	file = filepath.Join(folder, "token")
	if err := os.WriteFile(file, []byte(held.Owner()), 0o600); err != nil {
		_ = os.RemoveAll(folder)
		return "", "", fmt.Errorf("write the token: %w", err)
	}
	return folder, file, nil
}

// notStarted is the result of a run whose command was not started.
func (o *runOptions) notStarted(err error, endings []ending) error {
	if errors.Is(err, supervise.ErrHoldEnded) {
		return o.lost(endings, " before the command was started")
	}
	if _, isUnexecuted := errors.AsType[*exec.Error](err); isUnexecuted {
		return cannotExecute(err, o.end(endings))
	}
	return failure.New(failure.CannotRun, err.Error()+"; "+o.end(endings))
}

// result is the result of a run whose command has ended.
func (o *runOptions) result(outcome supervise.Outcome, endings []ending) error {
	switch {
	case errors.Is(outcome.Cause, supervise.ErrWatcherEnded):
		return failure.New(failure.Failed, outcome.Cause.Error()+"; the command was killed, and "+o.end(endings))
	case outcome.Cause != nil:
		return o.lost(endings, ", and the command was stopped")
	case slices.ContainsFunc(endings, ending.wasLost) && o.policy.OnLost != supervise.OnLostIgnore && outcome.Status == 0:
		return o.lost(endings, " while the command ran")
	}
	for _, each := range endings {
		o.warn(each)
	}
	if outcome.Status != 0 {
		return failure.SilentError(outcome.Status)
	}
	return nil
}

// warn tells of a lock that was not released, or lost.
func (o *runOptions) warn(of ending) {
	if of.err != nil {
		fmt.Fprintf(o.session.ErrOut, "warning: %s\n", o.end([]ending{of}))
	}
}

// lost is the result of a run that has lost a lock: the one for which the command was stopped, or which a release has found
// lost, or else the first to end. It warns of the others.
func (o *runOptions) lost(endings []ending, how string) error {
	lost := slices.IndexFunc(endings, func(each ending) bool { return each.key == o.stoppedFor })
	if lost < 0 {
		lost = max(0, slices.IndexFunc(endings, ending.wasLost))
	}
	for index, each := range endings {
		if index != lost {
			o.warn(each)
		}
	}
	key := endings[lost].key
	return failure.New(failure.NotHeld, key+" was lost"+how, "see who holds it now, and releases by force: "+o.session.Command("who", key))
}

// end says how the locks ended.
func (o *runOptions) end(endings []ending) string {
	var texts []string
	for _, each := range endings {
		switch {
		case each.err == nil:
			texts = append(texts, each.key+" was released")
		case each.wasLost():
			texts = append(texts, fmt.Sprintf("%s was lost before: %v", each.key, each.err))
		default:
			texts = append(texts, fmt.Sprintf("%s was not released: %v; it ends by itself, at the latest in %s", each.key, each.err, o.ttl))
		}
	}
	return strings.Join(texts, "; ")
}
