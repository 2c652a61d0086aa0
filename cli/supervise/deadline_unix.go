//go:build unix

package supervise

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deadline is a time in memory that front and supervisor share: a front that was stopped for hours
// finds the latest one, and no message is in its way. Zero is none.
type deadline struct{ at *atomic.Int64 }

const deadlineSize = int(unsafe.Sizeof(atomic.Int64{}))

// newShared returns a file for mapDeadline that the supervisor inherits.
func newShared() (*os.File, error) {
	file, err := memoryFile()
	if err != nil {
		return nil, fmt.Errorf("make a file for the deadline: %w", err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	if err := file.Truncate(int64(deadlineSize)); err != nil {
		return nil, fmt.Errorf("make a file for the deadline: %w", err)
	}
	return inherit(int(file.Fd()))
}

func mapDeadline(file *os.File) (*deadline, error) {
	memory, err := unix.Mmap(int(file.Fd()), 0, deadlineSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the deadline: %w", err)
	}
	return &deadline{at: (*atomic.Int64)(unsafe.Pointer(unsafe.SliceData(memory)))}, nil //nolint:gosec // a page is aligned
}

func (d *deadline) set(at time.Duration) { d.at.Store(int64(at)) }

func (d *deadline) get() time.Duration { return time.Duration(d.at.Load()) }
