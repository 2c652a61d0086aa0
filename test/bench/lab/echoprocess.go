package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"forrst.dev/lock-operator/test/bench/contender"
)

// EchoCommand is the argument that lets this program run as the echo.
const EchoCommand = "echo"

// EchoProcess is the echo in its own process, like the façade, so neither shares scheduler
// and heap with the clients.
type EchoProcess struct {
	command *exec.Cmd
	// input ends the process when it is closed, also by the end of this process.
	input io.Closer
	// Address is the address on which it listens.
	Address string
}

// startEcho starts this program as the echo. The caller stops it.
func startEcho() (*EchoProcess, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	e := &EchoProcess{command: exec.Command(path, EchoCommand)}
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
	e.Address = strings.TrimSpace(line)
	return e, nil
}

func (e *EchoProcess) stop() error { return errors.Join(e.input.Close(), e.command.Wait()) }

// routesOf returns the cluster's file of routes.
func routesOf(echo *EchoProcess) string {
	return fmt.Sprintf("routes:\n- functions: [%q]\n  url: http://%s%s\n", contender.RoutedFunction, echo.Address, servicePath)
}
