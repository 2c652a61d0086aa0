package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/windows"
)

// RunWatcher reports false: the kernel ends a job with the process that has it open.
func RunWatcher(Clock) bool { return false }

// Supervisor runs a command. Create one with [New]. Not safe for concurrent use.
type Supervisor struct {
	clock   Clock
	signals chan os.Signal
}

// New begins to receive ^C. The caller must call Close.
func New(clock Clock) *Supervisor {
	s := &Supervisor{clock: clock, signals: make(chan os.Signal, 1)}
	signal.Notify(s.signals, os.Interrupt)
	return s
}

// Close ends the receipt of signals.
func (s *Supervisor) Close() { signal.Stop(s.signals) }

func endsWait(os.Signal) bool { return true }

// Run runs the command in a job object until it and all processes that it has started have ended. There is
// no TERM: both stages of the policy end the job, after a call of stopping. The console sends ^C to the command itself. An error
// means that the command was not started: it matches [ErrHoldEnded] if there was no time for that, and is an
// [*exec.Error] if the operating system did not execute the file.
func (s *Supervisor) Run(command Command, hold Hold, policy Policy, stopping func(Stage, error)) (Outcome, error) {
	if stage, _ := policy.At(hold.Left()); stage != StageRun {
		return Outcome{}, ErrHoldEnded
	}
	job, err := newJob()
	if err != nil {
		return Outcome{}, err
	}
	defer windows.CloseHandle(job) //nolint:errcheck // nothing was written
	//nolint:gosec,noctx // running it is the purpose, and the job ends it
	child := &exec.Cmd{Path: command.Path, Args: command.Args, Env: command.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := child.Start(); err != nil {
		return Outcome{}, &exec.Error{Name: command.Path, Err: err}
	}
	// What it has started before is not in the job.
	var refused error
	err = child.Process.WithHandle(func(process uintptr) { refused = windows.AssignProcessToJobObject(job, windows.Handle(process)) })
	if err := errors.Join(err, refused); err != nil {
		_ = child.Process.Kill()
		_ = child.Wait()
		return Outcome{}, fmt.Errorf("assign the command to a job object: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = child.Wait()
	}()
	cause := s.watch(job, hold, policy, stopping, ended)
	return Outcome{Status: child.ProcessState.ExitCode(), Cause: cause}, nil
}

// watch returns when the job is empty, and why it was stopped.
func (s *Supervisor) watch(job windows.Handle, hold Hold, policy Policy, stopping func(Stage, error), ended <-chan struct{}) (cause error) {
	lost := hold.Done()
	for ended != nil || !isEmpty(job) {
		if stage, _ := policy.At(hold.Left()); stage != StageRun && cause == nil {
			cause = ErrHoldEnded
			_ = windows.TerminateJobObject(job, 1)
			stopping(StageKill, cause) // It may hang, as a console does in which text is selected.
		}
		select {
		case <-ended:
			ended = nil
		case <-lost:
			lost = nil
		case <-s.clock.At(s.clock.Now() + policy.Margin/2):
		case <-s.signals: // the command has got it, too
		}
	}
	return cause
}

// newJob returns a job object, which ends its processes when it is closed, as by the end of this process.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("create a job object: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))) //nolint:gosec // as the call wants it
	if err != nil {
		_ = windows.CloseHandle(job)
		return 0, fmt.Errorf("limit a job object: %w", err)
	}
	return job, nil
}

// isEmpty reports whether no process of the job runs.
func isEmpty(job windows.Handle) bool {
	// JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, which package windows does not have.
	var accounting struct {
		times              [4]int64
		faults             uint32
		total, active, end uint32
	}
	const basicAccountingInformation = 1
	err := windows.QueryInformationJobObject(job, basicAccountingInformation,
		uintptr(unsafe.Pointer(&accounting)), uint32(unsafe.Sizeof(accounting)), nil) //nolint:gosec // as the call wants it
	return err == nil && accounting.active == 0
}
