//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// HasFront says that commands are run by two processes here; see [RunFront].
const HasFront = true

// RunFront starts this program again with the arguments, as the supervisor, and returns its exit status when it
// and all that it has started have ended. Passes signals on, stops and continues with the command, and
// kills what is left when the supervisor dies, or does not prolong the hold in time. The error matches [ErrHoldEnded]
// if that was at the end of the hold or later, and else [ErrSupervisorDied]. Must be called once, by a program that has
// no other children.
func RunFront(clock Clock, args []string) (status int, err error) {
	// The supervisor is told when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := becomeSubreaper(); err != nil {
		return 0, err
	}
	signals, children, stopSignals := notify()
	defer stopSignals()
	ignoreTerminalOutput()
	f := &front{clock: clock, group: unix.Getpgrp(), tree: newTree(), terminal: openTerminal(), fate: "no command was started"}
	defer f.terminal.close()
	f.terminal.save()
	near, err := f.start(args)
	if err != nil {
		return 0, err
	}
	f.link = near
	messages := make(chan message)
	go receive(near, messages)
	defer func() {
		_ = near.Close()
		for range messages { // until receive has ended
		}
	}()
	f.timer = clock.NewTimer()
	defer f.timer.Close()
	return f.loop(signals, children, messages)
}

type front struct {
	clock    Clock
	timer    Timer
	group    int
	tree     tree
	terminal *terminal

	link       *os.File
	supervisor int
	hasEnded   bool
	status     unix.WaitStatus
	// command is the process group of the command while that runs, or zero.
	command int
	// fate is what becomes of the command if the supervisor is killed now.
	fate string
	// hadTerminal says that the command was given the terminal at some time.
	hadTerminal bool
	// endedBy is the signal that has ended the command.
	endedBy  syscall.Signal
	deadline *deadline
	// wasLate says that everything was killed at the end of the hold.
	wasLate bool
	scratch []string
}

// start starts the supervisor in a process group of its own: what stops this group, as ^Z does, does not stop it.
func (f *front) start(args []string) (near *os.File, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	near, far, err := newLink()
	if err != nil {
		return nil, err
	}
	defer far.Close() //nolint:errcheck // the supervisor has it
	shared, err := newShared()
	if err != nil {
		_ = near.Close()
		return nil, err
	}
	defer shared.Close() //nolint:errcheck // the mapping remains
	if f.deadline, err = mapDeadline(shared); err != nil {
		_ = near.Close()
		return nil, err
	}
	attributes := &syscall.SysProcAttr{Setpgid: true}
	// A stopped supervisor must notice that this process has ended.
	dieWithParent(attributes, syscall.SIGCONT)
	environment := append(os.Environ(), fmt.Sprintf(linkVariable+"="+linkFormat, far.Fd(), shared.Fd()))
	f.supervisor, err = forkCommand(program, append(os.Args[:1:1], args...),
		&syscall.ProcAttr{Env: environment, Files: []uintptr{0, 1, 2}, Sys: attributes})
	if err != nil {
		_ = near.Close()
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	f.tree.leader, f.tree.hasLeader = f.supervisor, true
	return near, nil
}

func (f *front) loop(signals, children <-chan os.Signal, messages <-chan message) (status int, err error) {
	for {
		if f.reap() {
			return f.finish(messages)
		}
		select {
		case sent := <-signals:
			f.passOn(sent)
		case <-children:
		case next, isOpen := <-messages:
			if isOpen {
				f.handle(next)
			} else {
				messages = nil
			}
		case <-f.timer.C():
			// This process may have been stopped, and the supervisor have ended since.
			if !f.reap() {
				f.checkDeadline()
			}
		}
	}
}

// reap reports whether the supervisor and everything below it have ended.
func (f *front) reap() bool {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || pid <= 0:
			return f.hasEnded && !f.hasLeftover()
		case pid == f.supervisor:
			f.hasEnded, f.status = true, status
			f.tree.hasLeader = false
		}
	}
}

// hasLeftover kills what a supervisor has left that could not do so itself.
func (f *front) hasLeftover() bool {
	if f.status.Exited() {
		return false
	}
	if f.command > 0 && !f.tree.isComplete() {
		_ = unix.Kill(-f.command, syscall.SIGKILL)
	}
	f.tree.signal(syscall.SIGKILL)
	return f.tree.isComplete() && len(f.tree.members()) > 0
}

func (f *front) finish(messages <-chan message) (status int, err error) {
	for next := range orClosed(messages) {
		f.handle(next)
	}
	f.takeTerminal()
	if f.status.Exited() {
		f.interruptGroup()
		return f.status.ExitStatus(), nil
	}
	for _, path := range f.scratch {
		_ = os.RemoveAll(path)
	}
	// The supervisor would have told, but after a suspension either process may be the first to see it.
	if f.wasLate || f.isOverdue() {
		return 0, ErrHoldEnded
	}
	return 0, fmt.Errorf("%w; %s", ErrSupervisorDied, f.fate)
}

// orClosed returns a closed channel for nil.
func orClosed(messages <-chan message) <-chan message {
	if messages != nil {
		return messages
	}
	closed := make(chan message)
	close(closed)
	return closed
}

// handle acts on a message of the supervisor.
func (f *front) handle(m message) {
	switch m.Kind {
	case kindStarting:
		f.fate = "the command was killed"
		f.tree.leaveOut(m.PID)
		f.checkDeadline()
	case kindStarted:
		f.command, f.hadTerminal = m.PID, m.IsForeground
	case kindStopped:
		f.commandStopped(m.Signal)
	case kindEnded:
		f.endedBy = m.Signal
		f.takeTerminal()
		f.command, f.fate = 0, "the command had ended"
	case kindScratch:
		f.scratch = append(f.scratch, m.Path)
	}
}

// checkDeadline kills everything if the supervisor has not prolonged the deadline, because it is stopped or
// does not get to run.
func (f *front) checkDeadline() {
	killAt := f.deadline.get()
	switch {
	case f.hasEnded || killAt == 0:
	case f.isOverdue():
		f.wasLate = true
		f.tree.signal(syscall.SIGKILL)
	default:
		f.timer.Set(killAt)
	}
}

// isOverdue reports whether the hold is about to end, or has ended, and something of the command may be left.
func (f *front) isOverdue() bool {
	killAt := f.deadline.get()
	return killAt != 0 && f.clock.Now() >= killAt
}

// passOn sends a signal to the supervisor, which passes it on to the command.
func (f *front) passOn(sent os.Signal) {
	number, ok := sent.(syscall.Signal)
	switch {
	case !ok || f.hasEnded:
		return
	case number == syscall.SIGCONT:
		f.giveTerminal()
	}
	f.sendOn(number)
}

// sendOn tells the supervisor of a signal. That fails only if it has ended.
func (f *front) sendOn(number syscall.Signal) {
	_, _ = f.link.Write([]byte{byte(number)})
}

// commandStopped does what a shell does when its job has stopped.
func (f *front) commandStopped(by syscall.Signal) {
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	switch {
	case f.command == 0:
		// The supervisor has no command that could stop.
		if canStop() {
			f.stop()
		}
	case f.terminal == nil:
	case wantsTerminal && f.terminal.foreground() == f.group:
		f.giveTerminal()
		f.sendOn(syscall.SIGCONT)
	case !canStop():
		// As the kernel discards the signal for a process without a shell above it.
		if !wantsTerminal {
			f.sendOn(syscall.SIGCONT)
		}
	default:
		f.takeTerminal()
		f.stop()
	}
}

// stop stops the whole process group, as ^Z would without this process: a shell sees its job stopped.
func (f *front) stop() { _ = unix.Kill(0, syscall.SIGSTOP) }

// giveTerminal gives the terminal to the command if this process group has it.
func (f *front) giveTerminal() {
	if f.command > 0 && f.terminal.foreground() == f.group {
		f.hadTerminal = true
		f.terminal.give(f.command)
	}
}

// takeTerminal takes the terminal back from the command.
func (f *front) takeTerminal() {
	if f.command > 0 && f.terminal.foreground() == f.command {
		f.terminal.give(f.group)
	}
	if f.endedBy != 0 && f.hadTerminal {
		f.terminal.restore()
	}
}

// interruptGroup has the rest of this process group, such as a script, end by the ^C that ended the command: the
// kernel has sent it to the command alone.
func (f *front) interruptGroup() {
	if f.hadTerminal && (f.endedBy == syscall.SIGINT || f.endedBy == syscall.SIGQUIT) && f.terminal.foreground() == f.group {
		signal.Ignore(f.endedBy)
		_ = unix.Kill(0, f.endedBy)
	}
}
