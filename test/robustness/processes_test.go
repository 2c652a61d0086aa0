package robustness_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a process that obeys lines on its standard input, ends with it, and reports in
// lines on its standard output. One may follow another.
type process struct {
	// name is that of its log in dir.
	name, dir string

	// mu guards the fields below, which belong to the present process.
	mu      sync.Mutex
	command *exec.Cmd
	input   io.WriteCloser
	ended   chan error
	// suspending gets a value when the process expects to be suspended.
	suspending chan struct{}
}

// launch starts a process, which must not run yet, and returns the first line that it writes.
// note gets the others.
func (p *process) launch(command *exec.Cmd, note func(line string)) (first string, err error) {
	logs, err := os.OpenFile(filepath.Join(p.dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = logs.Close() }() // The process has its own handle.
	command.Stderr = logs
	input, err := command.StdinPipe()
	if err != nil {
		return "", err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := command.Start(); err != nil {
		return "", err
	}
	ended, suspending := make(chan error, 1), make(chan struct{}, 1)
	lines := bufio.NewScanner(output)
	lines.Scan()
	first = lines.Text()
	go func() {
		for lines.Scan() {
			if line := lines.Text(); line != "suspending" {
				note(line)
			} else {
				suspending <- struct{}{}
			}
		}
		ended <- command.Wait()
	}()
	p.mu.Lock()
	p.command, p.input, p.ended, p.suspending = command, input, ended, suspending
	p.mu.Unlock()
	if first == "" {
		return "", errors.Join(fmt.Errorf("%s did not start, see %s", p.name, logs.Name()), p.stop())
	}
	return first, nil
}

// signal sends a signal to the process.
func (p *process) signal(with syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.command.Process.Signal(with)
}

// tell sends a command to the process.
func (p *process) tell(command string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := fmt.Fprintln(p.input, command)
	return err
}

// minFreeze is how long a process is stopped at least: a shorter stop is no suspend for it.
const minFreeze = time.Second

// freeze stops the process for a time, and for less if ctx ends. With suspend, the process takes
// that for a suspend of its machine.
func (p *process) freeze(ctx context.Context, suspend bool, length time.Duration) error {
	if suspend {
		if err := p.tell("suspend"); err != nil {
			return err
		}
		p.mu.Lock()
		suspending := p.suspending
		p.mu.Unlock()
		select {
		case <-suspending:
		case <-time.After(startTimeout):
			return fmt.Errorf("%s does not expect to be suspended", p.name)
		}
	}
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	pause(context.WithoutCancel(ctx), minFreeze)
	pause(ctx, length-minFreeze)
	return p.signal(syscall.SIGCONT)
}

// kill ends the process at once, and returns when it has ended.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	err := <-ended
	ended <- err
	return nil
}

// isRunning reports whether the process has not ended.
func (p *process) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case err := <-p.ended:
		p.ended <- err
		return false
	default:
		return true
	}
}

// stop ends the process, and kills it if it does not end in time.
func (p *process) stop() error {
	_ = p.signal(syscall.SIGCONT) // It may be stopped, or have ended.
	p.mu.Lock()
	_ = p.input.Close()
	ended := p.ended
	p.mu.Unlock()
	select {
	case err := <-ended:
		ended <- err
		return err
	case <-time.After(2 * time.Minute):
		return errors.Join(fmt.Errorf("%s did not end", p.name), p.signal(syscall.SIGKILL))
	}
}

// dataRace returns what the race detector has found first in the processes of the name, or nil. A process that was killed
// does not say so by its exit status.
func (p *process) dataRace() error {
	logged, err := os.ReadFile(filepath.Join(p.dir, p.name+".log"))
	if err != nil {
		return err
	}
	const border = "==================\n"
	_, found, isFound := strings.Cut(string(logged), border+"WARNING: DATA RACE\n")
	if !isFound {
		return nil
	}
	found, _, _ = strings.Cut(found, border)
	return fmt.Errorf("%s has a data race:\n%s", p.name, found)
}
