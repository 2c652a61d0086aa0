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

// echoCommand is the argument that lets this program run as the echo.
const echoCommand = "echo"

// echoProcess is the echo in its own process, like the façade, so neither shares scheduler
// and heap with the clients.
type echoProcess struct {
	command *exec.Cmd
	// input ends the process when it is closed, also by the end of this process.
	input io.Closer
	// address is the address on which it listens.
	address string
}

// startEcho starts this program as the echo. The caller stops it.
func startEcho() (*echoProcess, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	//nolint:noctx // it ends with its input
	e := &echoProcess{command: exec.Command(path, echoCommand)}
	e.command.Stderr = os.Stderr
	// Ctrl-C reaches the benchmark alone, which then ends the echo.
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
		return nil, errors.Join(fmt.Errorf("read the address of the echo: %w", err), e.stop())
	}
	e.address = strings.TrimSpace(line)
	return e, nil
}

func (e *echoProcess) stop() error { return errors.Join(e.input.Close(), e.command.Wait()) }
