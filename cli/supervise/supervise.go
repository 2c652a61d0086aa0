package supervise

import (
	"context"
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

// Command is what to run. It gets the standard streams of this process.
type Command struct {
	// Path is the file of the program.
	Path string
	// Args are the arguments, the name of the program first.
	Args []string
	// Env is the whole environment.
	Env []string
	// Scratch is a folder that the watcher removes if this process is killed. Empty is none.
	Scratch string
}

// Outcome is how a command ended.
type Outcome struct {
	// Status is the exit status, 128 plus the number of the signal that ended the command.
	Status int
	// Cause is why the command was told to end: [ErrHoldEnded], [ErrWatcherEnded], or nil if it was not.
	Cause error
}

var (
	// ErrHoldEnded says that the hold ended, or was about to, before the command was started or before it ended.
	ErrHoldEnded = errors.New("the hold ended before the command")
	// ErrWatcherEnded says that the watcher was killed, or did not read any more.
	ErrWatcherEnded = errors.New("the process that watches this one was killed")
)

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

// Prepare calls fn with a context that ends when the process is told to end, with a [*SignalError] as its cause. If the
// context has ended, that is the error, whatever fn returned.
func (s *Supervisor) Prepare(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	result := make(chan error, 1)
	go func() { result <- fn(ctx) }()
	for {
		select {
		case sent := <-s.signals:
			if endsWait(sent) {
				cancel(&SignalError{Signal: sent})
			}
		case err := <-result:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
	}
}
