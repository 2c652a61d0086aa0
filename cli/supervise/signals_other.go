//go:build unix && !linux

package supervise

import "os"

func systemSignals() []os.Signal { return nil }
