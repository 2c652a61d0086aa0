package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/lock"
)

// outerVariable has, as JSON, each "kubectl lock run" that a process is under, the outermost first.
const outerVariable = "FORRST_LOCK_RUNS"

// outerRun is a run that holds its lock until the process has ended.
type outerRun struct {
	// Server is the URL of the façade or of the API server.
	Server    string `json:"server"`
	Namespace string `json:"namespace"`
	Key       string `json:"key"`
}

// outerRuns returns those of this process. What is malformed tells of none.
func outerRuns() (runs []outerRun) {
	_ = json.Unmarshal([]byte(os.Getenv(outerVariable)), &runs)
	return runs
}

// ownHolderError says that a wait would never end: the holder waits for this process. It matches [lock.ErrHeld].
type ownHolderError struct {
	holder string
	held   error
}

// Error implements error.
func (e *ownHolderError) Error() string { return e.holder + ", and waits for this command to end" }

// Unwrap returns the error about the holder.
func (e *ownHolderError) Unwrap() error { return e.held }

// findOwnHolder returns held, the error of an attempt, as an [*ownHolderError] if the lock is that of a run or of a Job that
// this process is part of.
func (o *runOptions) findOwnHolder(ctx context.Context, wanted outerRun, held error) error {
	if slices.Contains(outerRuns(), wanted) {
		return &ownHolderError{terminal.Clean(o.key) + " is held by the kubectl lock run that has started this command", held}
	}
	by, ok := errors.AsType[*lock.HeldError](held)
	if !ok {
		return held
	}
	host, err := os.Hostname()
	if err != nil {
		return held
	}
	if current := currentLock(ctx, o.session, by); current != nil && isOwnJob(current.Spec.HolderRef, host, os.Getenv("JOB_COMPLETION_INDEX")) {
		return &ownHolderError{fmt.Sprintf("%s is held by Job %s, which this Pod is part of", terminal.Clean(o.key), current.Spec.HolderRef.Name), held}
	}
	return held
}

var podSuffix = regexp.MustCompile(`^[a-z0-9]{5}$`)

// isOwnJob reports whether the lock is held for the Job of the Pod with this host name. Kubernetes makes it of the Job's name,
// the index in an indexed Job, and five characters.
func isOwnJob(ref *v1alpha1.HolderReference, host, index string) bool {
	if ref == nil || ref.Kind != "Job" {
		return false
	}
	prefix := ref.Name + "-"
	if index != "" {
		prefix += index + "-"
	}
	suffix, isOf := strings.CutPrefix(host, prefix)
	return isOf && podSuffix.MatchString(suffix)
}
