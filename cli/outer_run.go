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
	// FencingToken is that of the grant.
	FencingToken int64 `json:"fencingToken"`
}

// outerRuns returns those of this process. Text that is no list of them tells of none.
func outerRuns() []outerRun {
	var runs []outerRun
	if err := json.Unmarshal([]byte(os.Getenv(outerVariable)), &runs); err != nil {
		return nil
	}
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
	by, ok := errors.AsType[*lock.HeldError](held)
	if !ok {
		return held
	}
	current := currentLock(ctx, o.session, by)
	if current == nil {
		return held
	}
	if token, err := current.FencingToken(); err == nil {
		wanted.FencingToken = token // A run that has lost the lock to another holder is none.
		if slices.Contains(outerRuns(), wanted) {
			return &ownHolderError{terminal.Clean(o.key) + " is held by the kubectl lock run that has started this command", held}
		}
	}
	if host, err := os.Hostname(); err == nil && podNamespace() == wanted.Namespace && isOwnJob(current.Spec.HolderRef, host, os.Getenv("JOB_COMPLETION_INDEX")) {
		return &ownHolderError{fmt.Sprintf("%s is held by Job %s, which this Pod is part of", terminal.Clean(o.key), current.Spec.HolderRef.Name), held}
	}
	return held
}

// podNamespace returns the namespace of the Pod, empty outside of one or if it has no token.
func podNamespace() string {
	content, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// What the API server makes of the name of a Job for its Pods: so many bytes of it and a hyphen, and five characters.
const maxPodPrefix = 58

var podSuffix = regexp.MustCompile(`^[a-z0-9]{5}$`)

// isOwnJob reports whether the lock is held for the Job of the Pod with this host name: the name of the Pod, or in an indexed
// Job that of the Job and the index.
func isOwnJob(ref *v1alpha1.HolderReference, host, index string) bool {
	if ref == nil || ref.Kind != "Job" {
		return false
	}
	if index != "" {
		return host == ref.Name+"-"+index
	}
	prefix := ref.Name + "-"
	suffix, isOf := strings.CutPrefix(host, prefix[:min(len(prefix), maxPodPrefix)])
	return isOf && podSuffix.MatchString(suffix)
}
