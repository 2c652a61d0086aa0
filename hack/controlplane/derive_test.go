package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAnotherVersionIsBuiltAsItWasReleased builds small programs that a proxy in a folder
// serves in place of Kubernetes and etcd.
func TestAnotherVersionIsBuiltAsItWasReleased(t *testing.T) {
	proxy := t.TempDir()
	program := "package main\n\nimport \"k8s.io/component-base/version\"\n\nfunc main() { version.Print() }\n"
	publish(t, proxy, "k8s.io/kubernetes", "v1.2.3", map[string]string{
		"go.mod": "module k8s.io/kubernetes\n\ngo 1.24.0\n\n" +
			"require (\n\tgo.etcd.io/etcd/server/v3 v3.4.5 // indirect\n\tk8s.io/component-base v0.0.0\n)\n\n" +
			"replace k8s.io/component-base => ./staging/src/k8s.io/component-base\n",
		"cmd/kube-apiserver/main.go":          program,
		"cmd/kube-controller-manager/main.go": program,
		"cmd/kube-scheduler/main.go":          program,
		"cmd/kubectl/main.go":                 program,
	})
	publish(t, proxy, "k8s.io/component-base", "v0.2.3", map[string]string{
		"go.mod": "module k8s.io/component-base\n\ngo 1.24.0\n",
		"version/version.go": "package version\n\nvar gitVersion, gitMajor, gitMinor string\n\n" +
			"func Print() { print(gitVersion, \" \", gitMajor, \" \", gitMinor) }\n",
	})
	publish(t, proxy, "go.etcd.io/etcd/server/v3", "v3.4.5", map[string]string{
		"go.mod":  "module go.etcd.io/etcd/server/v3\n\ngo 1.24.0\n",
		"main.go": "package main\n\nfunc main() { print(\"etcd 3.4.5\") }\n",
	})
	t.Setenv("GOPROXY", "file://"+filepath.ToSlash(proxy))
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	// Otherwise the test could not remove what it downloads.
	t.Setenv("GOFLAGS", "-modcacherw")

	out := filepath.Join(t.TempDir(), "k8s-1.2.3")
	wanted := recipe{module: "/nonexistent", kubernetes: "1.2.3"}
	if err := provide(t.Context(), wanted, out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"etcd": "etcd 3.4.5", "kube-apiserver": "v1.2.3 1 2", "kube-controller-manager": "v1.2.3 1 2",
		"kube-scheduler": "v1.2.3 1 2", "kubectl": "v1.2.3 1 2",
	} {
		got, err := exec.CommandContext(t.Context(), filepath.Join(out, name)).CombinedOutput()
		if err != nil || string(got) != want {
			t.Errorf("%s prints %q, error = %v, want %q", name, got, err, want)
		}
	}

	// It is not built again, for which the proxy would be needed.
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	if err := provide(t.Context(), wanted, out); err != nil {
		t.Error(err)
	}
}

func TestRefusedVersions(t *testing.T) {
	for name, test := range map[string]struct {
		wanted recipe
		want   string
	}{
		"without a patch number":     {recipe{kubernetes: "1.34"}, `K8S is "1.34"`},
		"as in a tag":                {recipe{kubernetes: "v1.34.4"}, `K8S is "v1.34.4"`},
		"no version":                 {recipe{kubernetes: "../1.34.4"}, `K8S is "../1.34.4"`},
		"beside ready-made binaries": {recipe{kubernetes: "1.34.4", readyMade: "/assets"}, "unset one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			err := provide(t.Context(), test.wanted, filepath.Join(t.TempDir(), "k8s"))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want one with %q", err, test.want)
			}
		})
	}
}

// publish puts a version of a module into the folder of a proxy.
func publish(t *testing.T, proxy, module, version string, files map[string]string) {
	t.Helper()
	versions := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	writeFile(t, filepath.Join(versions, version+".info"), fmt.Sprintf(`{"Version": %q}`, version))
	writeFile(t, filepath.Join(versions, version+".mod"), files["go.mod"])
	archive, err := os.Create(filepath.Join(versions, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	writer := zip.NewWriter(archive)
	for name, content := range files {
		file, err := writer.Create(module + "@" + version + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(writer.Close(), archive.Close()); err != nil {
		t.Fatal(err)
	}
}
