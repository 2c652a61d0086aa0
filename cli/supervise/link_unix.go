//go:build unix

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// linkVariable tells a supervisor the descriptor of its link. It is not for the command.
const linkVariable = "KUBECTL_LOCK_SUPERVISOR_LINK"

// message is what the supervisor tells the front.
type message struct {
	Kind kind `json:"kind"`
	// PID is that of the command, and of its process group.
	PID int `json:"pid,omitempty"`
	// IsForeground says that the command was given the terminal.
	IsForeground bool `json:"isForeground,omitempty"`
	// Signal is what has stopped or ended the command.
	Signal syscall.Signal `json:"signal,omitempty"`
	// KillAt is when the front kills what is left. Zero means never.
	KillAt time.Duration `json:"killAt,omitempty"`
	// Path is a folder to remove if the supervisor cannot.
	Path string `json:"path,omitempty"`
}

type kind string

const (
	kindStarted  kind = "started"
	kindStopped  kind = "stopped"
	kindEnded    kind = "ended"
	kindDeadline kind = "deadline"
	kindScratch  kind = "scratch"
)

// minLinkDescriptor keeps the link from the descriptors that a caller hands to its command.
const minLinkDescriptor = 200

// newLink returns the two ends of a connection between processes.
func newLink() (near, far *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	syscall.CloseOnExec(ends[0])
	syscall.CloseOnExec(ends[1])
	// Inherited by the supervisor: the only process that the front starts.
	moved, err := unix.FcntlInt(uintptr(ends[1]), unix.F_DUPFD, minLinkDescriptor)
	_ = unix.Close(ends[1])
	if err != nil {
		_ = unix.Close(ends[0])
		return nil, nil, fmt.Errorf("duplicate a socket: %w", err)
	}
	// Close then ends a read.
	_ = unix.SetNonblock(ends[0], true)
	return os.NewFile(uintptr(ends[0]), "link"), os.NewFile(uintptr(moved), "link"), nil
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
}

// openLink returns nil if this process was not started by a front.
func openLink() (*link, error) {
	text, ok := os.LookupEnv(linkVariable)
	if !ok {
		return nil, nil //nolint:nilnil // as documented
	}
	_ = os.Unsetenv(linkVariable)
	descriptor, err := strconv.Atoi(text)
	if err != nil || descriptor < minLinkDescriptor {
		return nil, fmt.Errorf("%s=%q is no descriptor", linkVariable, text)
	}
	syscall.CloseOnExec(descriptor)
	file := os.NewFile(uintptr(descriptor), "link")
	defer file.Close() //nolint:errcheck // FileConn has duplicated it
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("open the link to the front process: %w", err)
	}
	l := &link{conn: conn, gone: make(chan struct{})}
	go func() {
		// The front sends nothing. What ends the read is its death, or close.
		_, _ = conn.Read(make([]byte, 1))
		close(l.gone)
	}()
	return l, nil
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
