package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMissingBinariesAreNamed(t *testing.T) {
	folder := t.TempDir()
	operatorPath := filepath.Join(folder, "operator")
	all := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"}

	for name, test := range map[string]struct {
		executable []string
		plain      []string
		operator   bool
		want       []string
	}{
		"no binary exists": {
			want: []string{"etcd, kube-apiserver, kube-controller-manager, kubectl", folder, "make control-plane"},
		},
		"one is missing": {
			executable: []string{"etcd", "kube-apiserver", "kubectl"},
			want:       []string{"no binary kube-controller-manager in", folder, "make control-plane"},
		},
		"one cannot be executed": {
			executable: []string{"etcd", "kube-apiserver", "kube-controller-manager"},
			plain:      []string{"kubectl"},
			want:       []string{"no binary kubectl in", folder},
		},
		"the operator is missing": {
			executable: all,
			want:       []string{operatorPath, "make build"},
		},
		"all binaries exist": {
			executable: append([]string{"operator"}, all...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, name := range append(all, "operator") {
				if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
					t.Fatal(err)
				}
			}
			touch(t, folder, 0o755, test.executable...)
			touch(t, folder, 0o644, test.plain...)

			err := requireBinaries(options{binaries: folder, operator: operatorPath})
			if len(test.want) == 0 {
				if err != nil {
					t.Errorf("error = %v, want none", err)
				}
				return
			}
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v, want one with %q", err, want)
				}
			}
		})
	}
}

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

func TestNodesNeedTwoMoreBinaries(t *testing.T) {
	folder := t.TempDir()
	touch(t, folder, 0o755, "etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
	opts := options{binaries: folder, nodes: 1, kwok: filepath.Join(folder, "kwok")}
	for _, missing := range []string{"kube-scheduler", "kwok"} {
		if err := requireBinaries(opts); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("error = %v, want one that names %s", err, missing)
		}
		touch(t, folder, 0o755, missing)
	}
	if err := requireBinaries(opts); err != nil {
		t.Error(err)
	}
}
