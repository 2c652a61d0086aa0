// Package failure has the errors that end a command: what was wrong, what the user can
// do about it, and the exit status. From turns the errors of the SDK and of the API
// server into them.
package failure

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Code is an exit status of kubectl-lock. All of them are from 200 on, where programs
// and shells have none, so that "run" can pass on the status of its command. 128+n says
// that signal n ended a command, and 126 or 127 that "run" could not execute it.
type Code int

// The exit statuses. Zero is success.
const (
	// Failed is any failure that has no code of its own.
	Failed Code = 200
	// Busy says that the lock is held: it was not acquired, or did not become free in time.
	Busy Code = 201
	// NotHeld says that the lock is not held, or not by the caller: it is free, has
	// expired, was released or was lost.
	NotHeld Code = 202
	// Unavailable says that the API server or the façade could not be asked, or did not
	// answer. What was asked for may have happened.
	Unavailable Code = 203
	// Refused says that the caller is not known or lacks a right, or that the cluster
	// refuses what was asked for, as by a quota or a policy. Nothing was done.
	Refused Code = 204
	// Usage says that the arguments are wrong. Nothing was done.
	Usage Code = 205
	// CannotRun says that "run" could not prepare its command, as without room for the owner token. The lock was released.
	// A command that cannot be executed has a status of its own, as "env" has.
	CannotRun Code = 206
)

// Error ends a command.
type Error struct {
	// Code is the exit status.
	Code Code
	// What says what was wrong, in one line, beginning in lower case, without a full stop.
	What string
	// Do says what the user can do, one way each. Empty only if there is nothing.
	Do []string
}

// New returns an error for what was wrong and what the user can do.
func New(code Code, what string, do ...string) *Error {
	return &Error{Code: code, What: what, Do: do}
}

// Usagef returns an error for wrong arguments. To say what to do, use [New].
func Usagef(format string, args ...any) *Error {
	return New(Usage, fmt.Sprintf(format, args...))
}

// Error implements error, with What alone.
func (e *Error) Error() string { return e.What }

// SilentError is an exit status without a message, such as the status of the command of "run".
type SilentError int

// Error implements error.
func (s SilentError) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Print writes what was wrong and what to do, and returns the exit status; zero for nil. Doctor is as for [From].
func Print(out io.Writer, err error, doctor string) int {
	if err == nil {
		return 0
	}
	if status, ok := errors.AsType[SilentError](err); ok {
		return int(status)
	}
	failed := From(err, doctor)
	fmt.Fprintf(out, "error: %s\n", strings.TrimRight(failed.What, "\n"))
	for _, do := range failed.Do {
		fmt.Fprintf(out, "  → %s\n", do)
	}
	return int(failed.Code)
}
