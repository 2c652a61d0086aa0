package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnnouncementCountsOnlyForItsProcess(t *testing.T) {
	dir := stateDir(t.TempDir())
	if _, announced, err := readAnnouncement(dir, 7); announced || err != nil {
		t.Fatalf("before any: announced = %v, error = %v", announced, err)
	}

	saved := announcement{PID: 7, Facade: "http://127.0.0.1:8080", Kubeconfig: "/kubeconfig", Kubectl: "/kubectl", Logs: "/logs", Options: map[string]string{"AUTH": authToken}}
	if err := saved.save(dir); err != nil {
		t.Fatal(err)
	}
	got, announced, err := readAnnouncement(dir, 7)
	if err != nil || !announced {
		t.Fatalf("announced = %v, error = %v", announced, err)
	}
	if diff := cmp.Diff(saved, got); diff != "" {
		t.Errorf("announcement (-saved +read):\n%s", diff)
	}
	if _, announced, err := readAnnouncement(dir, 8); announced || err != nil {
		t.Errorf("another process: announced = %v, error = %v", announced, err)
	}
}
