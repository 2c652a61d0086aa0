package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// A terminal shows one changing line; a log gets a new line in longer intervals.
	terminalInterval = 500 * time.Millisecond
	logInterval      = 15 * time.Second

	eraseLine = "\r\x1b[K"

	// keptLines is how many lines of the go command's other output an error contains.
	keptLines = 40
)

// progress shows the progress of the go command, which it reads from the command's standard
// error. It is safe for concurrent use.
type progress struct {
	out      io.Writer
	terminal bool
	started  time.Time
	done     chan struct{}
	finished sync.WaitGroup

	mu         sync.Mutex
	partial    string
	downloaded int
	compiled   int
	// total is zero until compiling starts.
	total  int
	others []string
}

func startProgress() *progress {
	p := &progress{
		out:      os.Stdout,
		terminal: isTerminal(os.Stdout),
		started:  time.Now(),
		done:     make(chan struct{}),
	}
	p.finished.Go(p.show)
	return p
}

// stop ends the display, and returns when it has ended.
func (p *progress) stop() {
	close(p.done)
	p.finished.Wait()
}

// compiling switches the display from downloads to packages.
func (p *progress) compiling(total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = total
}

func (p *progress) show() {
	interval := logInterval
	if p.terminal {
		interval = terminalInterval
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-p.done:
			if p.terminal {
				_, _ = io.WriteString(p.out, eraseLine)
			}
			return
		case <-ticker.C:
			if p.terminal {
				_, _ = io.WriteString(p.out, eraseLine+p.line())
			} else {
				_, _ = io.WriteString(p.out, p.line()+"\n")
			}
		}
	}
}

func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := time.Since(p.started).Round(time.Second)
	if p.total == 0 {
		return fmt.Sprintf("control-plane: downloading modules: %d so far, %s", p.downloaded, elapsed)
	}
	// Packages that the build cache holds are not counted as compiled, and linking
	// follows the last one; hence no percentage.
	return fmt.Sprintf("control-plane: compiling: %d packages of at most %d, %s (minutes the first time)", p.compiled, p.total, elapsed)
}

// Write implements [io.Writer] for the standard error of the go command.
func (p *progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := strings.Split(p.partial+string(text), "\n")
	p.partial = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		p.count(line)
	}
	return len(text), nil
}

func (p *progress) count(line string) {
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		p.downloaded++
	case !strings.ContainsAny(line, " \t"):
		// With -v the go command prints the bare path of each package it compiles.
		p.compiled++
	default:
		p.others = append(p.others, line)
		p.others = p.others[max(0, len(p.others)-keptLines):]
	}
}

// complaints returns the last lines that name neither a download nor a package.
func (p *progress) complaints() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(append(p.others, p.partial), "\n")
}

func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
