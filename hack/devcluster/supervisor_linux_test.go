package main

import "testing"

// Only Linux can end a child with its parent.
func TestProcessesDieWithAKilledSupervisor(t *testing.T) {
	dir := stateDir(t.TempDir())
	supervisor := runHelper(t, "supervise", string(dir))
	awaitReady(t, dir.log("child"))
	if err := supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The child inherited the claim: the folder is free when both are gone.
	awaitFree(t, dir)
}
