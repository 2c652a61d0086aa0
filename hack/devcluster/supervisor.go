package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
)

// stopGrace is how long a component may take to end after SIGTERM.
const stopGrace = 5 * time.Second

// A supervisor owns the processes of one cluster: when one of them ends by
// itself, the supervisor ends the context that everything else works under.
type supervisor struct {
	dir stateDir
	// claim is inherited by every process, see [stateDir.claim].
	claim *os.File
	fail  context.CancelCauseFunc
	forks chan func()

	mu       sync.Mutex
	stopping bool
	// processes are in the order of their start.
	processes []*process
}

// newSupervisor returns a supervisor and the context that ends, with the reason as
// its cause, when the parent does or a process ends by itself.
func newSupervisor(parent context.Context, dir stateDir, claim *os.File) (*supervisor, context.Context) {
	ctx, fail := context.WithCancelCause(parent)
	s := &supervisor{dir: dir, claim: claim, fail: fail, forks: make(chan func())}
	go s.forkAll()
	return s, ctx
}

// forkAll starts every process on one thread that lives as long as the
// supervisor. The kernel binds a child's death signal to the thread that forked it,
// and Go may end a thread while the program goes on.
func (s *supervisor) forkAll() {
	runtime.LockOSThread()
	for start := range s.forks {
		start()
	}
}

// start starts a process and watches it from then on. Its working folder is that with
// the sockets of etcd.
func (s *supervisor) start(name, path string, args ...string) error {
	var started *process
	var err error
	done := make(chan struct{})
	s.forks <- func() {
		defer close(done)
		started, err = spawn(name, s.dir.etcd(), s.dir.log(name), s.claim, path, args...)
	}
	<-done
	if err != nil {
		return err
	}

	s.mu.Lock()
	s.processes = append(s.processes, started)
	s.mu.Unlock()
	go s.watch(started)
	return nil
}

func (s *supervisor) watch(p *process) {
	<-p.exited
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.fail(&exitError{name: p.name, log: p.log, state: p.state})
	}
}

// stop ends the processes, last started first, so that each one still has what it
// depends on while it ends. It returns when all are gone. Once hurry is closed they
// are killed.
func (s *supervisor) stop(out io.Writer, hurry <-chan struct{}) {
	s.mu.Lock()
	s.stopping = true
	processes := s.processes
	s.mu.Unlock()

	for _, p := range slices.Backward(processes) {
		if p.stop(stopGrace, hurry) {
			fmt.Fprintf(out, "%s did not end in time and was killed\n", p.name)
		}
	}
	close(s.forks)
}
