package client

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// tokenFileAge is for how long what a token file held is used. The tokens of service accounts are replaced
// long before they expire.
const tokenFileAge = time.Minute

var errNoToken = errors.New("the file is empty")

// tokenFile reads a bearer token from a file. Safe for concurrent use.
type tokenFile struct {
	path string

	mu     sync.Mutex
	token  string
	readAt time.Time
}

// read returns the token. One that was read before is used further while the file cannot be read.
func (f *tokenFile) read(clock clock.PassiveClock) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := clock.Now()
	if age := now.Sub(f.readAt); f.token != "" && age >= 0 && age < tokenFileAge {
		return f.token, nil
	}
	content, err := os.ReadFile(f.path)
	token := strings.TrimSpace(string(content))
	switch {
	case err == nil && token != "":
		f.token, f.readAt = token, now
	case f.token != "": // It may be in the middle of its replacement.
	case err != nil:
		return "", err
	default:
		return "", fmt.Errorf("read %s: %w", f.path, errNoToken)
	}
	return f.token, nil
}
