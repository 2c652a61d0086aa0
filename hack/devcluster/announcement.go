package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// An announcement says that a cluster is ready and how to reach it. It is a file in the
// state folder, for commands that did not start the cluster.
type announcement struct {
	PID int `json:"pid"`
	// Facade is empty in a cluster without operator.
	Facade     string `json:"facade,omitempty"`
	Kubeconfig string `json:"kubeconfig"`
	Kubectl    string `json:"kubectl"`
	Logs       string `json:"logs"`
	// Token is a file with a bearer token for the façade. Empty if the façade asks for none.
	Token string `json:"token,omitempty"`
	// Prometheus is the address of the Prometheus that reads the metrics. Empty if there is none.
	Prometheus string `json:"prometheus,omitempty"`
	// Options is the result of [options.chosen] at the start of the cluster.
	Options map[string]string `json:"options"`
}

func (a announcement) save(dir stateDir) error {
	content, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	// A waiting process must never read an incomplete file.
	draft := dir.state() + ".draft"
	if err := os.WriteFile(draft, append(content, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(draft, dir.state())
}

// readAnnouncement returns the announcement of the process, if it exists. An announcement
// of an earlier process does not count.
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
