package refusal

import (
	"sync"
	"time"
)

const (
	// logAgainAfter is how often a cause is logged that lasts.
	logAgainAfter = 10 * time.Minute
	// maxLogged bounds how many causes are remembered.
	maxLogged = 1000
)

// Logged remembers which causes of failures are in the log: every write may meet them. Its zero value is ready
// for use. Safe for concurrent use.
type Logged struct {
	mu sync.Mutex
	at map[string]time.Time
}

// IsDue reports whether a cause is to be logged, once in ten minutes, and records that it was.
func (l *Logged) IsDue(cause string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.at[cause]; ok && now.Sub(at) < logAgainAfter {
		return false
	}
	if l.at == nil || len(l.at) >= maxLogged {
		l.at = map[string]time.Time{}
	}
	l.at[cause] = now
	return true
}
