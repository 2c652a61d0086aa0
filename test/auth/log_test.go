package auth_test

import (
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// logRecorder keeps what is logged. It is safe for concurrent use.
type logRecorder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *logRecorder) logger() logr.Logger {
	return funcr.New(func(prefix, arguments string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.text.WriteString(prefix + arguments + "\n")
	}, funcr.Options{Verbosity: 9})
}

func (r *logRecorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}
