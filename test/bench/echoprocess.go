package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// echoCommand is the argument that makes this program the echo.
const echoCommand = "echo"

// echoProcess is the echo in a process of its own, as the façade is, so that neither
// shares a scheduler and a heap with the clients.
type echoProcess struct {
	command *exec.Cmd
	// input ends the process when it is closed, which it also is when this process dies.
	input io.Closer
	// address is where it listens.
	address string
}

// startEcho starts this program once more. The caller stops it.
func startEcho() (*echoProcess, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	//nolint:noctx // it ends with its input
	e := &echoProcess{command: exec.Command(path, echoCommand)}
	e.command.Stderr = os.Stderr
	// Ctrl-C is for the benchmark alone, which then ends the echo.
	e.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if e.input, err = e.command.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := e.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := e.command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the echo does not tell where it listens: %w", err), e.stop())
	}
	e.address = strings.TrimSpace(line)
	return e, nil
}

func (e *echoProcess) stop() error { return errors.Join(e.input.Close(), e.command.Wait()) }
