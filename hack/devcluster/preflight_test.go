package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnusableFacadeAddressesAreRefused(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()

	for name, test := range map[string]struct{ address, want string }{
		"a port only":          {"8080", "missing port in address; give host and port"},
		"all interfaces":       {":8080", "loopback only"},
		"another interface":    {"192.0.2.1:8080", "loopback only"},
		"a port that is taken": {taken.Addr().String(), "address already in use"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := freeFacadeAddress(t.Context(), test.address)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestFacadeAddressWithPortZeroGetsAFreePort(t *testing.T) {
	address, err := freeFacadeAddress(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "127.0.0.1" || port == "0" {
		t.Errorf("address = %q, want 127.0.0.1 and a real port", address)
	}
}

func touch(t *testing.T, folder string, mode os.FileMode, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(folder, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRoutesAreCheckedBeforeAnythingStarts(t *testing.T) {
	if err := checkRoutes(""); err != nil {
		t.Error(err)
	}
	if err := checkRoutes(filepath.Join("..", "..", "docs", "routes.yaml")); err != nil {
		t.Errorf("the sample: %v", err)
	}
	path := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(path, []byte("routes: 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkRoutes(path); err == nil || !strings.Contains(err.Error(), "line 1: routes must be a list") {
		t.Errorf("a bad file: %v", err)
	}
}

func TestAMissingPrometheusIsExplained(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	path := filepath.Join(folder, "own", "prometheus")
	if _, err := findPrometheus(path); err == nil || !strings.Contains(err.Error(), "make prometheus") {
		t.Errorf("error = %v, want one that says how to get it", err)
	}
	touch(t, folder, 0o755, "prometheus")
	if found, err := findPrometheus(path); err != nil || found != filepath.Join(folder, "prometheus") {
		t.Errorf("found %q, %v, want that of the machine", found, err)
	}
}
