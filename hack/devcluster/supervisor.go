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

// A supervisor owns the processes of one cluster. When one of them ends by itself, the
// supervisor ends the context of the cluster.
type supervisor struct {
	dir stateDir
	// Every process inherits claim, see [stateDir.claim].
	claim *os.File
	fail  context.CancelCauseFunc
	forks chan func()

	mu       sync.Mutex
	stopping bool
	// processes are ordered by their start.
	processes []*process
}

// newSupervisor returns a supervisor and its context. The context ends with the parent or
// when a process ends by itself, with the reason as its cause.
func newSupervisor(parent context.Context, dir stateDir, claim *os.File) (*supervisor, context.Context) {
	ctx, fail := context.WithCancelCause(parent)
	s := &supervisor{dir: dir, claim: claim, fail: fail, forks: make(chan func())}
	go s.forkAll()
	return s, ctx
}

// forkAll starts every process on one thread that lives as long as the supervisor. The
// kernel kills a child when the thread that forked it ends, and Go may end other threads
// while the program runs.
func (s *supervisor) forkAll() {
	runtime.LockOSThread()
	for start := range s.forks {
		start()
	}
}

// start starts a process and watches it. The working folder is the one with etcd's sockets.
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

// stop ends the processes, last started first, so each can still use the processes that it
// depends on. It returns when all have ended. When hurry is closed it kills them.
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
