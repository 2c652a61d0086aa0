package supervise

import (
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile returns a file without a name.
func memoryFile() (*os.File, error) {
	descriptor, err := unix.MemfdCreate("deadline", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(descriptor), "deadline"), nil
}
