//go:build unix

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// linkVariable tells a supervisor the descriptors of its link. It is not for the command.
const linkVariable = "KUBECTL_LOCK_SUPERVISOR_LINK"

// linkFormat is how linkVariable names the descriptors of the connection and of the deadline.
const linkFormat = "%d,%d"

// message is what the supervisor tells the front.
type message struct {
	Kind kind `json:"kind"`
	// PID is that of the command, and of its process group; of [kindStarting], that of the guard.
	PID int `json:"pid,omitempty"`
	// IsForeground says that the command was given the terminal.
	IsForeground bool `json:"isForeground,omitempty"`
	// Signal is what has stopped or ended the command.
	Signal syscall.Signal `json:"signal,omitempty"`
	// Path is a folder to remove if the supervisor cannot.
	Path string `json:"path,omitempty"`
}

type kind string

const (
	// kindStarting has the front watch the deadline, and leave out the guard when it kills: the front may be killed before it
	// has done the rest. The supervisor may be stopped before it can tell that the command was started.
	kindStarting kind = "starting"
	kindStarted  kind = "started"
	kindStopped  kind = "stopped"
	kindEnded    kind = "ended"
	kindScratch  kind = "scratch"
)

// minDescriptor keeps what the supervisor inherits from the descriptors that a caller hands to its command.
const minDescriptor = 200

// inherit has the next process inherit a copy of the descriptor: the supervisor, the only one that the front starts.
func inherit(descriptor int) (*os.File, error) {
	copied, err := unix.FcntlInt(uintptr(descriptor), unix.F_DUPFD, minDescriptor)
	if err != nil {
		return nil, fmt.Errorf("duplicate a descriptor: %w", err)
	}
	return os.NewFile(uintptr(copied), "inherited"), nil
}

// newLink returns the two ends of a connection between processes.
func newLink() (near, far *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	defer unix.Close(ends[1]) //nolint:errcheck // nothing was written
	syscall.CloseOnExec(ends[0])
	syscall.CloseOnExec(ends[1])
	// Close then ends a read.
	_ = unix.SetNonblock(ends[0], true)
	near = os.NewFile(uintptr(ends[0]), "link")
	if far, err = inherit(ends[1]); err != nil {
		_ = near.Close()
		return nil, nil, err
	}
	return near, far, nil
}

// receive sends the messages of the supervisor until the connection ends.
func receive(near *os.File, messages chan<- message) {
	defer close(messages)
	decoder := json.NewDecoder(near)
	for {
		var next message
		if decoder.Decode(&next) != nil {
			return
		}
		messages <- next
	}
}

// link is the supervisor's end. A nil link has no front.
type link struct {
	conn net.Conn
	gone chan struct{}
	// signals are those that the front passes on, in their order: the kernel would drop a CONT before a TSTP.
	signals  chan syscall.Signal
	deadline *deadline
}

// openLink returns nil if this process was not started by a front.
func openLink() (*link, error) {
	text, ok := os.LookupEnv(linkVariable)
	if !ok {
		return nil, nil // as documented
	}
	_ = os.Unsetenv(linkVariable)
	var descriptors [2]int
	if _, err := fmt.Sscanf(text, linkFormat, &descriptors[0], &descriptors[1]); err != nil || min(descriptors[0], descriptors[1]) < minDescriptor {
		return nil, fmt.Errorf("%s=%q names no descriptors", linkVariable, text)
	}
	syscall.CloseOnExec(descriptors[0])
	syscall.CloseOnExec(descriptors[1])
	shared := os.NewFile(uintptr(descriptors[1]), "deadline")
	defer shared.Close() //nolint:errcheck // the mapping remains
	deadline, err := mapDeadline(shared)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(descriptors[0]), "link")
	defer file.Close() //nolint:errcheck // FileConn has duplicated it
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("open the link to the front process: %w", err)
	}
	l := &link{conn: conn, gone: make(chan struct{}), signals: make(chan syscall.Signal, 64), deadline: deadline}
	go l.read()
	return l, nil
}

// read returns when the front has ended, or after close.
func (l *link) read() {
	defer close(l.gone)
	number := make([]byte, 1)
	for {
		if _, err := l.conn.Read(number); err != nil {
			return
		}
		select {
		case l.signals <- syscall.Signal(number[0]):
		default: // more than a kernel would queue
		}
	}
}

// Signals are those that the front passes on.
func (l *link) Signals() <-chan syscall.Signal {
	if l == nil {
		return nil
	}
	return l.signals
}

// setDeadline sets when the front kills what is left.
func (l *link) setDeadline(at time.Duration) {
	if l != nil {
		l.deadline.set(at)
	}
}

// Gone is closed when the front has ended.
func (l *link) Gone() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.gone
}

// send tells the front. That fails only if it has ended, which Gone reports.
func (l *link) send(m message) {
	if l == nil {
		return
	}
	text, err := json.Marshal(m)
	if err != nil {
		return
	}
	_, _ = l.conn.Write(append(text, '\n'))
}

func (l *link) close() error {
	if l == nil {
		return nil
	}
	err := l.conn.Close()
	<-l.gone
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
