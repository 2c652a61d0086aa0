package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/top"
)

const (
	// framePeriod is how often the screen is drawn: what counts down does so in seconds.
	framePeriod = 500 * time.Millisecond
	// waitersPeriod is how often the waiting Jobs are listed.
	waitersPeriod = 5 * time.Second
)

// What a terminal understands. The other screen keeps what was there before.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTopLeft   = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
)

// topView is the command "top".
type topView struct {
	*session.Session
	allNamespaces bool
	screen        top.Screen
	namespace     string
}

func newTop(s *session.Session) *cobra.Command {
	t := &topView{Session: s}
	command := &cobra.Command{
		Use:   "top",
		Short: "Show the locks live: holders, countdowns, waiting Jobs, hand-offs per second",
		Long: `Show the locks live: holders, countdowns, waiting Jobs, and how many locks are
acquired, handed off, renewed and released per second.

s sorts by another column, and q quits. A lock that expires within five seconds
is marked with "!". In a pipe, it writes one screen and ends.`,
		Example: `  kubectl lock top -n payments
  kubectl lock top -A`,
		Args: noArgs,
		RunE: func(command *cobra.Command, _ []string) error { return t.run(command.Context()) },
	}
	command.Flags().BoolVarP(&t.allNamespaces, "all-namespaces", "A", false, "Show the locks of all namespaces")
	return command
}

func (t *topView) run(ctx context.Context) (err error) {
	cluster, err := t.Cluster()
	if err != nil {
		return err
	}
	t.namespace = t.Namespace()
	t.screen = top.Screen{Where: "namespace " + t.namespace, AllNamespaces: t.allNamespaces}
	if t.allNamespaces {
		t.namespace, t.screen.Where = "", "all namespaces"
	}
	model := new(top.Model)
	if !t.Terminal().IsTerminal {
		return t.once(ctx, cluster, model)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed := make(chan error, 1)
	go func() {
		failed <- (&locks.Source{Cluster: cluster, Namespace: t.namespace}).Follow(ctx, t.Clock, model)
	}()
	go t.followWaiting(ctx, cluster, model)
	return t.show(ctx, model, failed)
}

// once writes one screen without colours, of any height.
func (t *topView) once(ctx context.Context, cluster client.WithWatch, model *top.Model) error {
	all, _, err := (&locks.Source{Cluster: cluster, Namespace: t.namespace}).List(ctx)
	if err != nil {
		return err
	}
	model.Listed(all)
	waiting, _ := locks.WaitingJobs(ctx, cluster, t.namespace)
	model.SetWaiting(waiting)
	_, err = fmt.Fprintln(t.Out, strings.Join(t.screen.Frame(model, t.Times()), "\n"))
	return err
}

// followWaiting lists the waiting Jobs until ctx ends. They are few, and a watch of Jobs
// would show each change of their status.
func (t *topView) followWaiting(ctx context.Context, cluster client.Client, model *top.Model) {
	ticker := t.Clock.NewTicker(waitersPeriod)
	defer ticker.Stop()
	for {
		waiting, _ := locks.WaitingJobs(ctx, cluster, t.namespace)
		model.SetWaiting(waiting)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// show draws frames until the user quits.
func (t *topView) show(ctx context.Context, model *top.Model, failed <-chan error) error {
	keys := make(chan byte, 8)
	if in, ok := t.In.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return fmt.Errorf("prepare the terminal: %w", err)
		}
		defer func() { _ = term.Restore(int(in.Fd()), before) }()
		go readKeys(ctx, in, keys)
	}
	fmt.Fprint(t.Out, enterScreen)
	defer fmt.Fprint(t.Out, leaveScreen)
	ticker := t.Clock.NewTicker(framePeriod)
	defer ticker.Stop()
	for {
		t.draw(model)
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case key := <-keys:
			switch key {
			case 'q', 'Q', 3: // ^C
				return nil
			case 's', 'S':
				t.screen.Order++
			}
		case <-ticker.C():
		}
	}
}

func (t *topView) draw(model *top.Model) {
	// The size may have changed.
	t.screen.Terminal = t.Terminal()
	var frame bytes.Buffer
	frame.WriteString(toTopLeft)
	// In raw mode, a line feed does not go back to the first column.
	frame.WriteString(strings.Join(t.screen.Frame(model, t.Times()), eraseLine+"\r\n"))
	frame.WriteString(eraseLine + eraseBelow)
	_, _ = t.Out.Write(frame.Bytes())
}

// readKeys ends with the program: a read from a terminal cannot be cancelled.
func readKeys(ctx context.Context, in io.Reader, keys chan<- byte) {
	var key [1]byte
	for {
		if _, err := in.Read(key[:]); err != nil {
			return
		}
		select {
		case keys <- key[0]:
		case <-ctx.Done():
			return
		}
	}
}
