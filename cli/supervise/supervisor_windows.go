package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/windows"
)

// HasFront says that commands are run by one process here.
const HasFront = false

// RunFront is not supported on Windows.
func RunFront(Clock, []string) (status int, err error) { return 0, errors.ErrUnsupported }

// IsAttached reports false.
func IsAttached() bool { return false }

// IsGuard reports false.
func IsGuard() bool { return false }

// RunGuard is not supported on Windows: the kernel ends the job.
func RunGuard(Clock) (status int) { return 1 }

// Supervisor runs commands. Create one with [Attach]. Not safe for concurrent use.
type Supervisor struct {
	clock       Clock
	interrupted chan os.Signal
}

// Attach begins to receive signals. The caller must call Close.
func Attach(clock Clock) (*Supervisor, error) {
	s := &Supervisor{clock: clock, interrupted: make(chan os.Signal, 1)}
	signal.Notify(s.interrupted, os.Interrupt)
	return s, nil
}

// PID returns that of the process that the user has started, which is this one.
func PID() int { return os.Getpid() }

// Close ends the receipt of signals.
func (s *Supervisor) Close() error {
	signal.Stop(s.interrupted)
	return nil
}

// KeepScratch does nothing: no other process could remove the folder.
func (s *Supervisor) KeepScratch(string) {}

// Prepare calls fn with a context that ends at ^C, with a [*SignalError] as its cause. If it has
// ended, that is the error, whatever fn returned.
func (s *Supervisor) Prepare(ctx context.Context, fn func(ctx context.Context) error) error {
	return prepare(ctx, fn, func(done <-chan struct{}) error {
		select {
		case <-done:
			return nil
		case sent := <-s.interrupted:
			return &SignalError{Signal: sent}
		}
	})
}

// Run runs the command in a job object until it and all processes that it has started have ended. There is
// no TERM: both stages of the policy end the job. The console sends ^C to the command itself. An error
// means that the command was not started: it matches [ErrHoldEnded] if there was no time for that, and is an
// [*exec.Error] if the operating system did not execute the file.
func (s *Supervisor) Run(command Command, hold Hold, policy Policy, events Events) (Outcome, error) {
	if stage, _ := policy.At(hold.Left()); stage != StageRun {
		return Outcome{}, ErrHoldEnded
	}
	job, err := newJob()
	if err != nil {
		return Outcome{}, err
	}
	defer job.close()
	//nolint:gosec,noctx // running it is the purpose, and the job ends it
	child := &exec.Cmd{Path: command.Path, Args: command.Args, Env: command.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := child.Start(); err != nil {
		return Outcome{}, &exec.Error{Name: command.Path, Err: err}
	}
	if err := job.add(child.Process.Pid); err != nil {
		_ = child.Process.Kill()
		_ = child.Wait()
		return Outcome{}, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = child.Wait()
	}()
	wasStopped := s.watch(job, hold, policy, events, ended)
	return Outcome{Status: child.ProcessState.ExitCode(), WasStopped: wasStopped}, nil
}

// watch returns when the job is empty, and whether it was stopped.
func (s *Supervisor) watch(job job, hold Hold, policy Policy, events Events, ended <-chan struct{}) (wasStopped bool) {
	timer := s.clock.NewTimer()
	defer timer.Close()
	lost := hold.Done()
	for {
		if ended == nil && job.isEmpty() {
			return wasStopped
		}
		if stage, _ := policy.At(hold.Left()); stage != StageRun && !wasStopped {
			wasStopped = true
			if events.Stopping != nil {
				events.Stopping(StageKill, nil)
			}
			_ = windows.TerminateJobObject(job.handle, 1)
		}
		timer.Set(s.clock.Now() + policy.lookAgainAfter())
		select {
		case <-ended:
			ended = nil
		case <-lost:
			lost = nil
		case <-timer.C():
		case <-s.interrupted: // the command has got it, too
		}
	}
}

// job is a job object, which ends its processes when this process ends.
type job struct{ handle windows.Handle }

func newJob() (job, error) {
	handle, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return job{}, fmt.Errorf("create a job object: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(handle, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))) //nolint:gosec // as the call wants it
	if err != nil {
		_ = windows.CloseHandle(handle)
		return job{}, fmt.Errorf("limit a job object: %w", err)
	}
	return job{handle: handle}, nil
}

func (j job) close() { _ = windows.CloseHandle(j.handle) }

// add takes in a process. What it has started before that is not in the job.
func (j job) add(pid int) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid)) //nolint:gosec // a process id
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer windows.CloseHandle(process) //nolint:errcheck // nothing was written
	if err := windows.AssignProcessToJobObject(j.handle, process); err != nil {
		return fmt.Errorf("assign process %d to the job object: %w", pid, err)
	}
	return nil
}

// isEmpty reports whether no process of the job runs.
func (j job) isEmpty() bool {
	// JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, which package windows does not have.
	var accounting struct {
		times              [4]int64
		faults             uint32
		total, active, end uint32
	}
	const basicAccountingInformation = 1
	err := windows.QueryInformationJobObject(j.handle, basicAccountingInformation,
		uintptr(unsafe.Pointer(&accounting)), uint32(unsafe.Sizeof(accounting)), nil) //nolint:gosec // as the call wants it
	return err == nil && accounting.active == 0
}
