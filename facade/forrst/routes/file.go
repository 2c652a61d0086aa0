package routes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// pollInterval is how often a file is looked at. A mounted ConfigMap changes by symlinks in the folders above it, and an
// edited file by being replaced: its content is all that can be relied on.
const pollInterval = 500 * time.Millisecond

// File is a table that follows a file. It implements controller-runtime's manager.Runnable, and is safe for concurrent use.
type File struct {
	path   string
	clock  clock.WithTicker
	logger logr.Logger
	table  atomic.Pointer[Table]

	// applied is what was read last that is in force or was refused, and candidate what was read last.
	applied, candidate reading
}

// reading is what came of looking at the file. Readings are comparable.
type reading struct {
	hash [sha256.Size]byte
	// fault says why it could not be read.
	fault string
}

// Open reads a file. The error says why it could not be read, or what is wrong with it and in which line. A nil clock is the
// real one.
func Open(path string, timers clock.WithTicker, logger logr.Logger) (*File, error) {
	if timers == nil {
		timers = clock.RealClock{}
	}
	f := &File{path: path, clock: timers, logger: logger.WithValues("file", path)}
	data, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("read the routes: %w", err)
	}
	table, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("routes in %s: %w", path, err)
	}
	f.table.Store(table)
	f.applied = reading{hash: sha256.Sum256(data)}
	f.candidate = f.applied
	return f, nil
}

// Find returns the route of a function by the table that is in force.
func (f *File) Find(function string) (Route, bool) { return f.table.Load().Find(function) }

// Routes returns the routes that are in force.
func (f *File) Routes() []Route { return f.table.Load().Routes() }

// Start follows the file until ctx ends. A file that is missing, cannot be read or is wrong leaves the table in force as it
// is, and is logged once.
func (f *File) Start(ctx context.Context) error {
	ticker := f.clock.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			f.poll()
		}
	}
}

// NeedLeaderElection is false: every replica serves its own callers.
func (f *File) NeedLeaderElection() bool { return false }

// poll applies what is new. It waits until two readings in a row agree, for the file may be half written.
func (f *File) poll() {
	data, err := f.read()
	found := reading{}
	if err != nil {
		found.fault = err.Error()
	} else {
		found.hash = sha256.Sum256(data)
	}
	isSettled := found == f.candidate
	f.candidate = found
	if !isSettled || found == f.applied {
		return
	}
	f.applied = found
	if err != nil {
		f.refuse("Routes could not be read, the last ones stay in force", err)
		return
	}
	table, err := Parse(data)
	if err != nil {
		f.refuse("Routes are wrong, the last ones stay in force", err)
		return
	}
	f.table.Store(table)
	f.logger.Info("Routes have changed", "routes", len(table.routes))
}

// refuse tells who edits the file what is wrong. It is no error of the program, whose stack
// would only hide that.
func (f *File) refuse(message string, err error) { f.logger.Info(message, "reason", err.Error()) }

func (f *File) read() ([]byte, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	// One byte more than is allowed, for Parse to refuse.
	_, err = content.ReadFrom(io.LimitReader(file, MaxFileBytes+1))
	return content.Bytes(), errors.Join(err, file.Close())
}
