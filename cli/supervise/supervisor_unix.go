//go:build unix

package supervise

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Supervisor runs commands. Create one with [Attach]. Not safe for concurrent use.
type Supervisor struct {
	clock             Clock
	front             *link
	signals, children chan os.Signal
	stopSignals       func()
	terminal          *terminal
	scratch           []message
}

// Attach connects to the front process if one has started this process, and begins to receive signals. The
// caller must call Close.
func Attach(clock Clock) (*Supervisor, error) {
	front, err := openLink()
	if err != nil {
		return nil, err
	}
	s := &Supervisor{clock: clock, front: front}
	if front != nil {
		ignoreTerminalOutput()
		s.terminal = openTerminal()
	}
	s.signals, s.children, s.stopSignals = notify()
	return s, nil
}

// IsAttached reports whether a front process has started this process.
func IsAttached() bool {
	_, ok := os.LookupEnv(linkVariable)
	return ok
}

// PID returns that of the process that the user has started: of the front, if one has started this process.
func PID() int {
	if IsAttached() {
		return os.Getppid()
	}
	return os.Getpid()
}

// Close ends the connection to the front process.
func (s *Supervisor) Close() error {
	s.stopSignals()
	s.terminal.close()
	return s.front.close()
}

// KeepScratch has other processes remove a folder if this process cannot. Must be called before Run.
func (s *Supervisor) KeepScratch(path string) {
	kept := message{Kind: kindScratch, Path: path}
	s.front.send(kept)
	s.scratch = append(s.scratch, kept)
}

// Prepare calls fn with a context that ends when the process is told to end, with a [*SignalError] as its cause,
// or when the front process has ended, with [ErrFrontGone]. If it has ended, that is the error, whatever fn returned.
func (s *Supervisor) Prepare(ctx context.Context, fn func(ctx context.Context) error) error {
	return prepare(ctx, fn, func(done <-chan struct{}) error {
		for {
			var sent os.Signal
			select {
			case <-done:
				return nil
			case <-s.front.Gone():
				return ErrFrontGone
			case sent = <-s.signals:
			case number := <-s.front.Signals():
				s.answerStop(number)
				sent = number
			}
			if endsProcess(sent) {
				return &SignalError{Signal: sent}
			}
		}
	})
}

// answerStop has the front stop itself for the signal if there is no command that stops. The front cannot tell: the
// command may have begun or ended meanwhile.
func (s *Supervisor) answerStop(sent syscall.Signal) {
	if sent == syscall.SIGTSTP {
		s.front.send(message{Kind: kindStopped, Signal: sent})
	}
}

// Run runs the command until it and, as far as the operating system permits, its descendants have ended. It
// stops them by the policy when the hold is about to end, and by KILL if the front process ends. An error
// means that the command was not started: it matches [ErrHoldEnded] if there was no time for that, and is an
// [*exec.Error] if the operating system did not execute the file.
func (s *Supervisor) Run(command Command, hold Hold, policy Policy, events Events) (Outcome, error) {
	// A command ends with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := becomeSubreaper(); err != nil {
		return Outcome{}, err
	}
	// Before newTree, which leaves it out.
	guard, mark, err := s.startGuard()
	if err != nil {
		return Outcome{}, err
	}
	defer guard.stop()
	command.Env = append(command.Env, mark...)
	r := &run{Supervisor: s, hold: hold, policy: policy, events: events, tree: newTree(), guard: guard}
	r.timer = s.clock.NewTimer()
	defer r.timer.Close()
	if stage, _ := policy.At(hold.Left()); stage != StageRun {
		return Outcome{}, ErrHoldEnded
	}
	defer r.front.setDeadline(0)
	r.advance() // the front knows when to kill before there is anything to kill
	starting := message{Kind: kindStarting}
	if guard != nil {
		starting.PID = guard.pid
	}
	r.front.send(starting)
	if err := r.start(command); err != nil {
		return Outcome{}, err
	}
	return r.loop(), nil
}

// startGuard starts a guard, and returns what the environment of the command needs for it. Without a front there is none.
func (s *Supervisor) startGuard() (started *guard, mark []string, err error) {
	if s.front == nil {
		return nil, nil, nil
	}
	name := newMark()
	if started, err = startGuard(name); err != nil {
		return nil, nil, err
	}
	for _, kept := range s.scratch {
		started.tell(kept)
	}
	return started, []string{name + "=1"}, nil
}

// run is one run of a command.
type run struct {
	*Supervisor

	hold   Hold
	policy Policy
	events Events
	timer  Timer
	tree   tree
	guard  *guard

	pid         int
	stage       Stage
	cause       error
	killAt      time.Duration
	killedAt    time.Duration
	hasEnded    bool
	hasLeftover bool
	status      unix.WaitStatus
}

func (r *run) start(command Command) error {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attributes, syscall.SIGKILL)
	// The terminal is the command's at once if the front has it, and does not share it with a pipeline: a pager
	// behind the command would be stopped. Such a command gets it when it asks for it.
	frontGroup, _ := unix.Getpgid(os.Getppid())
	isForeground := r.terminal != nil && frontGroup > 0 && r.terminal.foreground() == frontGroup && isTerminal(0) && isTerminal(1)
	if isForeground {
		attributes.Foreground, attributes.Ctty = true, int(r.terminal.file.Fd())
	}
	pid, err := forkCommand(command.Path, command.Args, &syscall.ProcAttr{Env: command.Env, Files: []uintptr{0, 1, 2}, Sys: attributes})
	if err != nil {
		return &exec.Error{Name: command.Path, Err: err}
	}
	r.pid, r.tree.leader, r.tree.hasLeader = pid, pid, true
	started := message{Kind: kindStarted, PID: pid, IsForeground: isForeground}
	r.front.send(started)
	r.guard.tell(started)
	return nil
}

// loop returns when nothing of the command is left.
func (r *run) loop() Outcome {
	lost, gone := r.hold.Done(), r.front.Gone()
	for {
		r.advance()
		if r.reap() {
			return r.outcome()
		}
		select {
		case <-lost:
			lost = nil
		case <-gone:
			gone = nil
			if r.stage == StageRun {
				r.cause = ErrFrontGone
			}
			r.kill()
		case <-r.timer.C():
		case <-r.children:
		case sent := <-r.signals:
			if number, ok := sent.(syscall.Signal); ok {
				r.passOn(number)
			}
		case sent := <-r.front.Signals():
			r.passOn(sent)
		}
	}
}

func (r *run) outcome() Outcome {
	outcome := Outcome{Status: r.status.ExitStatus(), WasStopped: r.stage > StageRun, Cause: r.cause}
	if r.status.Signaled() {
		outcome.Status = 128 + int(r.status.Signal())
	}
	return outcome
}

// advance takes the stop of the command to the stage that the time asks for, sets the timer for the next
// one, and tells the front its deadline.
func (r *run) advance() {
	// In this order: a suspension in between makes the deadline earlier.
	now := r.clock.Now()
	left := r.hold.Left()
	stage, next := r.policy.At(left)
	if r.stage == StageTerm && r.policy.OnLost == OnLostKill && now >= r.killAt {
		stage = StageKill
	}
	switch {
	case stage == StageKill && r.stage < StageKill:
		r.kill()
	case stage == StageTerm && r.stage < StageTerm:
		r.stage, r.killAt = StageTerm, now+min(r.policy.Grace, max(0, left-r.policy.Margin))
		r.report()
		r.tree.signal(syscall.SIGTERM)
		r.tree.signal(syscall.SIGCONT)
	}
	r.announce(now, left)
	pause := r.policy.lookAgainAfter()
	if next > 0 {
		pause = min(pause, left-next)
	}
	if r.stage == StageTerm && r.policy.OnLost == OnLostKill {
		pause = min(pause, r.killAt-now)
	}
	r.timer.Set(now + max(0, pause))
}

// announce tells the front when to kill what this process has not.
func (r *run) announce(now, left time.Duration) {
	before, isWanted := r.policy.watchdog()
	if !isWanted {
		return
	}
	at := now + left - before
	if r.stage == StageKill {
		// After the end of a hold without notice, too, this process has its time to see all end.
		at = max(at, r.killedAt+before)
	}
	r.front.setDeadline(at)
}

func (r *run) report() {
	if r.events.Stopping != nil {
		r.events.Stopping(r.stage, r.cause)
	}
}

func (r *run) kill() {
	if r.stage < StageKill {
		r.stage, r.killedAt = StageKill, r.clock.Now()
		r.report()
	}
	r.tree.signal(syscall.SIGKILL)
}

// reap notes what has become of the command, and reports whether nothing is left of it.
func (r *run) reap() (isOver bool) {
	r.waitForCommand()
	if r.stage == StageKill {
		r.tree.signal(syscall.SIGKILL) // those that were forked meanwhile
	}
	r.tree.reapOrphans()
	if !r.hasEnded {
		return false
	}
	members := r.tree.members()
	if len(members) == 0 {
		return true
	}
	if !r.hasLeftover {
		r.hasLeftover = true
		if r.events.Leftover != nil && r.stage == StageRun {
			r.events.Leftover(len(members))
		}
	}
	if !r.tree.isComplete() {
		r.timer.Set(r.clock.Now() + groupPoll)
	}
	return false
}

// groupPoll is how often a process group is looked at whose members are no children of this process.
const groupPoll = 50 * time.Millisecond

func (r *run) waitForCommand() {
	for !r.hasEnded {
		var status unix.WaitStatus
		pid, err := unix.Wait4(r.pid, &status, unix.WNOHANG|unix.WUNTRACED|unix.WCONTINUED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || pid == 0:
			return
		case status.Stopped():
			r.front.send(message{Kind: kindStopped, Signal: status.StopSignal()})
		case status.Continued():
		default:
			r.hasEnded, r.status = true, status
			r.tree.hasLeader = false
			ended := message{Kind: kindEnded}
			if status.Signaled() {
				ended.Signal = status.Signal()
			}
			r.front.send(ended)
			r.guard.tell(ended)
		}
	}
}

// passOn sends a signal to the process group of the command or, when that has ended, to what is left of it.
func (r *run) passOn(sent syscall.Signal) {
	if r.hasEnded {
		r.answerStop(sent)
		r.tree.signal(sent)
		return
	}
	_ = unix.Kill(-r.pid, sent)
}
