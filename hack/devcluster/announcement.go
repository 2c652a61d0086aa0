package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// An announcement says that a cluster is ready and how to reach it. It lies in the
// state folder for the commands that did not start the cluster themselves.
type announcement struct {
	PID        int    `json:"pid"`
	Facade     string `json:"facade"`
	Kubeconfig string `json:"kubeconfig"`
	Kubectl    string `json:"kubectl"`
	Logs       string `json:"logs"`
	// Token is a file with a bearer token for the façade, or empty if it asks for none.
	Token string `json:"token,omitempty"`
	// Options are those of [options.chosen] that it was started with.
	Options map[string]string `json:"options"`
}

func (a announcement) save(dir stateDir) error {
	content, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	// A process that waits for the file must never see half of it.
	draft := dir.state() + ".draft"
	if err := os.WriteFile(draft, append(content, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(draft, dir.state())
}

// readAnnouncement returns what the process has announced, if it has. What an
// earlier process left behind does not count.
func readAnnouncement(dir stateDir, pid int) (a announcement, announced bool, err error) {
	content, err := os.ReadFile(dir.state())
	if errors.Is(err, os.ErrNotExist) {
		return announcement{}, false, nil
	}
	if err != nil {
		return announcement{}, false, err
	}
	if err := json.Unmarshal(content, &a); err != nil {
		return announcement{}, false, fmt.Errorf("reading %s: %w", dir.state(), err)
	}
	return a, a.PID == pid, nil
}
