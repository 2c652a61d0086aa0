//go:build unix

package supervise

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Supervisor runs a command. Create one with [New]. Not safe for concurrent use.
type Supervisor struct {
	clock Clock
	// signals are those to pass on, and wake tells of children.
	signals, wake chan os.Signal
	terminal      *terminal
	ownGroup      int
	// endedBy is the signal that has ended a command that had the terminal.
	endedBy syscall.Signal
}

// New begins to receive signals. What the caller has this process ignore, as nohup does, stays ignored. The caller must
// call Close.
func New(clock Clock) *Supervisor {
	s := &Supervisor{
		clock: clock, signals: make(chan os.Signal, 64), wake: make(chan os.Signal, 1), terminal: openTerminal(), ownGroup: unix.Getpgrp(),
	}
	for _, each := range passedOn() {
		if !signal.Ignored(each) {
			signal.Notify(s.signals, each)
		}
	}
	signal.Notify(s.wake, syscall.SIGCHLD)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // Text for a reader that is gone must not end this process.
	return s
}

// Close ends the receipt of signals. If ^C has ended the command, it ends the rest of this process group as well, such as a
// script: the kernel has sent it to the command alone. This process ends with it, because shells go on after one that does not.
func (s *Supervisor) Close() {
	if s.endedBy == syscall.SIGINT && s.terminal.hasForeground(s.ownGroup) && !signal.Ignored(s.endedBy) {
		signal.Reset(s.endedBy)
		_ = unix.Kill(0, s.endedBy)
		<-s.clock.At(s.clock.Now() + stopsWithin)
	}
	signal.Stop(s.signals)
	signal.Stop(s.wake)
	if s.terminal != nil {
		_ = unix.Close(s.terminal.descriptor)
	}
}

// Run runs the command, and returns when it has ended and its process group is empty: what it leaves there has the grace of the
// policy to end by itself, and is then killed. The policy ends the group when the hold is about to end, and the end of the
// watcher kills it. Stopping is called after TERM and after KILL, with the cause of the [Outcome], which is nil for what the
// command has left. An error means that the command was not started: it matches [ErrHoldEnded] if there was no time for
// that, and is an [*exec.Error] if the operating system did not execute the file.
func (s *Supervisor) Run(command Command, hold Hold, policy Policy, stopping func(Stage, error)) (Outcome, error) {
	// On Linux a command ends with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	watcher, err := startWatcher(command.Scratch)
	if err != nil {
		return Outcome{}, err
	}
	defer watcher.stop()
	r := &run{Supervisor: s, hold: hold, policy: policy, stopping: stopping, watcher: watcher}
	if r.advance(); r.stage != StageRun { // The watcher has been told before there is anything to kill.
		return Outcome{}, ErrHoldEnded
	}
	if err := r.start(command); err != nil {
		return Outcome{}, err
	}
	return r.loop(), nil
}

// run is one run of a command.
type run struct {
	*Supervisor

	hold     Hold
	policy   Policy
	stopping func(stage Stage, cause error)
	watcher  *watcher

	// group is the process group, and the process number of the command; zero before it has started. The kernel gives the
	// number of an empty group to another process only when it has given all others.
	group    int
	stage    Stage
	hasEnded bool
	outcome  Outcome
	// killAt is when what is left gets KILL, and watchedUntil when the watcher kills. Zero is never.
	killAt, watchedUntil, killedAt time.Duration
	// lookAt is when there is the next thing to do, or may be.
	lookAt time.Duration
}

func (r *run) start(command Command) error {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attributes)
	// The terminal is the command's at once if this process group has it, and does not share it with a pipeline: a pager
	// behind the command would be stopped. Such a command gets it when it asks for it.
	if r.terminal.hasForeground(r.ownGroup) && term.IsTerminal(0) && term.IsTerminal(1) {
		attributes.Foreground, attributes.Ctty = true, r.terminal.descriptor
	}
	pid, err := forkCommand(command.Path, command.Args, &syscall.ProcAttr{Env: command.Env, Files: []uintptr{0, 1, 2}, Sys: attributes})
	if err != nil {
		if attributes.Foreground { // The process that could not execute the file has taken it.
			_ = unix.IoctlSetPointerInt(r.terminal.descriptor, unix.TIOCSPGRP, r.ownGroup)
		}
		return &exec.Error{Name: command.Path, Err: err}
	}
	r.group = pid
	return nil
}

// loop returns when nothing of the group is left.
func (r *run) loop() Outcome {
	lost, ended := r.hold.Done(), r.watcher.ended
	for {
		r.advance()
		r.reap()
		if r.isOver() {
			return r.outcome
		}
		select {
		case <-lost:
			lost = nil
		case <-ended:
			ended = nil
			r.advance() // If this process was late, that is why.
			r.stop(StageKill, ErrWatcherEnded)
		case <-r.clock.At(r.lookAt):
		case <-r.wake:
		case sent := <-r.signals:
			if sent == syscall.SIGCONT {
				r.resume()
			} else if number, ok := sent.(syscall.Signal); ok {
				r.signal(number)
			}
		}
	}
}

// groupPoll is how often a process group is looked at whose members are no children of this process.
const groupPoll = 50 * time.Millisecond

// advance takes the stop of the group to the stage that the time asks for, and tells the watcher its deadline.
func (r *run) advance() {
	// In this order: a suspension in between makes the deadline earlier.
	now := r.clock.Now()
	left := r.hold.Left()
	stage, next := r.policy.At(left)
	if r.watchedUntil != 0 && now >= r.watchedUntil {
		stage = StageKill // as the watcher has done, or is about to
	}
	r.stop(stage, ErrHoldEnded)
	if r.killAt != 0 && now >= r.killAt {
		r.stop(StageKill, r.outcome.Cause)
	}
	r.lookAt = now + lookAgain
	if next > 0 {
		r.lookAt = min(r.lookAt, now+left-next)
	}
	if r.killAt > now {
		r.lookAt = min(r.lookAt, r.killAt)
	}
	if r.hasEnded {
		r.lookAt = min(r.lookAt, now+groupPoll)
	}
	if r.policy.OnLost == OnLostKill {
		r.watchedUntil = now + left - r.policy.Margin/2
	}
	if r.group != 0 || r.stage == StageRun { // else it would kill this process
		r.watcher.tell(r.group, r.watchedUntil)
	}
}

// stop ends the group, unless that has gone as far already. The cause is none for what the command has left.
func (r *run) stop(stage Stage, cause error) {
	if stage <= r.stage {
		return
	}
	r.stage = stage
	if !r.hasEnded {
		r.outcome.Cause = cmp.Or(r.outcome.Cause, cause)
	}
	if r.group == 0 {
		return
	}
	now := r.clock.Now()
	if stage == StageKill {
		r.killedAt = now
		r.signal(syscall.SIGKILL)
	} else {
		r.signal(syscall.SIGTERM)
		r.signal(syscall.SIGCONT)
	}
	if stage == StageTerm && r.policy.OnLost == OnLostKill {
		r.killAt = now + min(r.policy.Grace, max(0, r.hold.Left()-r.policy.Margin))
	}
	r.stopping(stage, r.outcome.Cause) // It may hang, as a terminal does after ^S.
}

func (r *run) signal(number syscall.Signal) { _ = unix.Kill(-r.group, number) }

// reap notes what has become of the command. As PID 1 of a container, this process is the parent of the orphans of the group, too.
func (r *run) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-r.group, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid == 0:
			return
		case pid != r.group:
		case status.Stopped():
			r.commandStopped(status.StopSignal())
		default:
			r.commandEnded(status)
		}
	}
}

// stopsWithin bounds how long the kernel takes to stop or end this process. If it runs on, no shell would continue it.
const stopsWithin = 200 * time.Millisecond

// commandStopped does what a shell does when its job has stopped.
func (r *run) commandStopped(by syscall.Signal) {
	if r.terminal == nil {
		return
	}
	if wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU; !wantsTerminal || !r.terminal.hasForeground(r.ownGroup) {
		r.terminal.pass(r.group, r.ownGroup)
		stopOwnGroup()
		<-r.clock.At(r.clock.Now() + stopsWithin)
		r.advance() // The watcher may have killed meanwhile.
	}
	r.resume()
}

// resume continues the command, and gives it the terminal if this process group has it.
func (r *run) resume() {
	r.terminal.pass(r.ownGroup, r.group)
	r.signal(syscall.SIGCONT)
}

func (r *run) commandEnded(status unix.WaitStatus) {
	r.hasEnded, r.outcome.Status = true, status.ExitStatus()
	hadTerminal := r.terminal.pass(r.group, r.ownGroup)
	if status.Signaled() {
		r.outcome.Status = 128 + int(status.Signal())
	}
	if status.Signaled() && hadTerminal {
		if r.stage == StageRun {
			r.endedBy = status.Signal()
		}
		r.terminal.restore()
	}
	if r.killAt == 0 {
		r.killAt = r.clock.Now() + r.policy.Grace
	}
	r.lookAt = 0 // in short intervals from now on
}

// isOver reports whether the command has ended and nothing is left of its group. A zombie that its parent does not reap
// cannot be told from a process that runs, so no group is waited for long that was killed.
func (r *run) isOver() bool {
	if !r.hasEnded {
		return false
	}
	return errors.Is(unix.Kill(-r.group, 0), unix.ESRCH) || r.stage == StageKill && r.clock.Now() >= r.killedAt+maxMargin
}
