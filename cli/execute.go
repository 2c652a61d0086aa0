package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"forrst.dev/lock-operator/cli/failure"
)

// Exit statuses of a command that was not executed: those of env, nohup and shells.
const (
	cannotInvoke failure.Code = 126
	notFound     failure.Code = 127
)

// maxInterpreterLine is how much of a file Linux reads for the name of its interpreter, in bytes.
const maxInterpreterLine = 256

// cannotExecute is the result of a run whose program was not found, or refused by the operating system. The end says what
// has become of the lock.
func cannotExecute(err error, end string) error {
	what, do := err.Error(), "give the path of a program; for a script line, run sh -c '…'"
	if errors.Is(err, syscall.ENOEXEC) {
		do = fmt.Sprintf("begin a script with a line such as #!/bin/sh, or run sh SCRIPT; take a program for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	if !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
		return failure.New(cannotInvoke, what+"; "+end, do)
	}
	if failed, ok := errors.AsType[*exec.Error](err); ok && !errors.Is(err, exec.ErrNotFound) {
		if missing, remedy, isThere := missingFor(failed.Name); isThere {
			what, do = fmt.Sprintf("%s cannot be executed: %s was not found", failed.Name, missing), remedy
		}
	}
	return failure.New(notFound, what+"; "+end, do)
}

// missingFor says what an existing file needs that the operating system has not found, and what to do.
func missingFor(path string) (missing, remedy string, isThere bool) {
	file, err := os.Open(path)
	if err != nil {
		return "", "", false
	}
	defer file.Close() //nolint:errcheck // it was only read
	begin, _ := io.ReadAll(io.LimitReader(file, maxInterpreterLine))
	line, isScript := bytes.CutPrefix(begin, []byte("#!"))
	if !isScript {
		return "its loader", "install the C library that the program was built for, or take another build of it", true
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	interpreter, _, _ := strings.Cut(strings.Trim(strings.ReplaceAll(string(line), "\t", " "), " "), " ")
	if strings.HasSuffix(interpreter, "\r") {
		return fmt.Sprintf("its interpreter %q", interpreter), "its lines end as on Windows: have them end in LF, as dos2unix does", true
	}
	return fmt.Sprintf("its interpreter %q, or what that requires,", interpreter), "install the interpreter, or correct the first line", true
}
