package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/session"
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
	// FencingToken is the fencing token of the grant.
	FencingToken int64 `json:"fencingToken"`
}

// outerRuns returns the outer runs of this process. Text that is not a list of runs counts as an empty list.
func outerRuns(s *session.Session) []outerRun {
	var runs []outerRun
	if err := json.Unmarshal([]byte(s.Getenv(outerVariable)), &runs); err != nil {
		return nil
	}
	return runs
}

// newOuterRun returns a run of this session under the key, without a fencing token.
func newOuterRun(s *session.Session, key v1alpha1.FullKey) (outerRun, error) {
	server, err := s.Server()
	return outerRun{Server: strings.TrimRight(server, "/"), Namespace: s.Namespace(), Key: key.Bare()}, err
}

// ownHolderError says that a wait would never end: the holder waits for this process. It matches [lock.ErrHeld].
type ownHolderError struct{ holder string }

// Error implements error.
func (e *ownHolderError) Error() string { return e.holder + ", and waits for this command to end" }

// Is makes an ownHolderError match [lock.ErrHeld].
func (e *ownHolderError) Is(target error) bool { return target == lock.ErrHeld }

// checkOwnHolder returns an [*ownHolderError] if a run or a Job that this process is part of holds the lock, which may be nil.
func checkOwnHolder(s *session.Session, key v1alpha1.FullKey, current *v1alpha1.Lock) error {
	wanted, err := newOuterRun(s, key)
	if err != nil || current == nil {
		return nil //nolint:nilerr // such a session has no outer run that is known
	}
	if token, err := current.FencingToken(); err == nil {
		wanted.FencingToken = token // A run that has lost the lock to another holder is none.
		if slices.Contains(outerRuns(s), wanted) {
			return &ownHolderError{terminal.Clean(key.Bare()) + " is held by the kubectl lock run that has started this command"}
		}
	}
	pod := s.Pod()
	// Without a namespace, a façade uses the namespace of the caller.
	if pod.Namespace == cmp.Or(wanted.Namespace, pod.Namespace) && isOwnJob(current.Spec.HolderRef, pod.Host, s.Getenv("JOB_COMPLETION_INDEX")) {
		return &ownHolderError{fmt.Sprintf("%s is held by Job %s, which this Pod is part of", terminal.Clean(key.Bare()), current.Spec.HolderRef.Name)}
	}
	return nil
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
