//go:build unix && !linux

package supervise

import (
	"os"
	"syscall"
)

func systemSignals() []os.Signal { return nil }

func dieWithParent(*syscall.SysProcAttr) {}
