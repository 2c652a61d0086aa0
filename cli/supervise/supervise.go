package supervise

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Hold is what permits the command to run. Implementations are safe for concurrent use.
type Hold interface {
	// Left returns for how long the hold lasts for certain unless it is prolonged; zero or less if it has
	// ended or may have.
	Left() time.Duration
	// Done is closed when the hold has ended or may have.
	Done() <-chan struct{}
}

// Clock tells the time since the machine started, the time that it was suspended included. Safe for concurrent use.
type Clock interface {
	Now() time.Duration
	// NewTimer returns a timer that is not set.
	NewTimer() Timer
}

// Timer sends on its channel when a time of its clock is reached.
type Timer interface {
	// Set replaces the time at which the timer fires. A value of the former time may still be sent.
	Set(at time.Duration)
	C() <-chan struct{}
	Close()
}

// Command is what to run. It gets the standard streams of this process.
type Command struct {
	// Path is the file of the program.
	Path string
	// Args are the arguments, the name of the program first.
	Args []string
	// Env is the whole environment.
	Env []string
}

// Events reports what people may want to know. A nil function is not called.
type Events struct {
	// Stopping is called before the command is told to end, and again before it is killed. The cause is
	// nil if that is the end of the hold.
	Stopping func(stage Stage, cause error)
	// Leftover is called when the command has ended and descendants of it are still running.
	Leftover func(count int)
}

// Outcome is how a command ended.
type Outcome struct {
	// Status is the exit status, 128 plus the number of the signal that ended the command.
	Status int
	// WasStopped says that the command was told to end, because the hold ended or was about to, or for
	// the Cause.
	WasStopped bool
	// Cause is [ErrFrontGone] if the command was killed for that, and else nil.
	Cause error
}

var (
	// ErrHoldEnded says that the hold ended, or was about to, before the command was started or before it ended.
	ErrHoldEnded = errors.New("the hold ended before the command")
	// ErrSupervisorDied says that the supervisor was killed while the hold lasted. Its text goes on with what has become
	// of the command.
	ErrSupervisorDied = errors.New("the process that kept the lock was killed")
)

// ErrFrontGone is the cause of a context that ended because the front process was killed.
var ErrFrontGone = errors.New("the process that started this one was killed")

// SignalError is the cause of a context that ended because the process was told to end.
type SignalError struct{ Signal os.Signal }

// Error names the signal.
func (e *SignalError) Error() string { return fmt.Sprintf("ended by signal: %s", e.Signal) }

// Status is the exit status of a process that the signal has ended.
func (e *SignalError) Status() int {
	if number, ok := e.Signal.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return 1
}
