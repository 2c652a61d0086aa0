package install_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// load writes Locks and calls the façade until it is stopped.
type load struct {
	writes, calls, handOffs, handshakes, handshakesOfPeers atomic.Int64

	stop     func()
	mu       sync.Mutex
	failed   []string
	finished sync.WaitGroup
}

func (i *issuing) startLoad(token string) *load {
	const each, pause = 2, 20 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	started := &load{}
	started.stop = func() { cancel(); started.finished.Wait() }
	run := func(count *atomic.Int64, what string, do func(number int) error) {
		started.finished.Go(func() {
			ticker := time.NewTicker(pause)
			defer ticker.Stop()
			for number := 0; ctx.Err() == nil; number++ {
				if err := do(number); err != nil && ctx.Err() == nil {
					started.fail(fmt.Sprintf("%s: %s: %v", time.Now().Format(time.TimeOnly), what, err))
				}
				count.Add(1)
				<-ticker.C
			}
		})
	}
	for worker := range each {
		run(&started.writes, "write", func(number int) error { return i.writeLock(ctx, fmt.Sprintf("load-%d-%d", worker, number)) })
		replica := replicas[worker%len(replicas)]
		run(&started.calls, "call", func(number int) error {
			// Locks that stay for their ttl would fill the namespace on a fast machine.
			return i.passOn(ctx, replica, fmt.Sprintf("load-%d-%d", worker, number), token)
		})
		run(&started.handOffs, "hand-off", func(int) error { return i.passOn(ctx, replica, "passed-on", token) })
		// API servers keep their connections to the webhook, so handshakes are tried beside their reviews.
		run(&started.handshakes, "handshake", func(int) error {
			connection, err := i.handshake(ctx, i.ports[webhook], webhook, i.mounted(ctx))
			if err != nil {
				return err
			}
			return connection.Close()
		})
		// Replicas keep their connections, too.
		run(&started.handshakesOfPeers, "handshake of a peer", func(int) error {
			_, err := i.servedToPeers(ctx, replica)
			return err
		})
	}
	return started
}

// counts is how often each was done.
func (l *load) counts() map[string]int64 {
	return map[string]int64{
		"writes": l.writes.Load(), "calls": l.calls.Load(), "hand-offs": l.handOffs.Load(), "handshakes": l.handshakes.Load(),
		"handshakes of peers": l.handshakesOfPeers.Load(),
	}
}

func (l *load) fail(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, what)
}

func (l *load) failures() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}
