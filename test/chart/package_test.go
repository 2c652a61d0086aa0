package chart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// image is a line of a manifest with the image of a container.
var image = regexp.MustCompile(`(?m)^ +(?:- )?image: "?([^"\n]+)"?$`)

// packageRelease makes the chart and the bundles of a release.
func packageRelease(t *testing.T, environment ...string) (folder, output string, err error) {
	t.Helper()
	folder = t.TempDir()
	command := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "package.sh"), folder)
	command.Env = append(append(os.Environ(), "VERSION=v1.2.3", "IMAGE=", "DIGEST="), environment...)
	combined, err := command.CombinedOutput()
	return folder, string(combined), err
}

func TestChartAndBundlesOfAReleaseNameItsImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	for name, want := range map[string]string{
		"registry.example.com/platform/lock-operator": "registry.example.com/platform/lock-operator@" + digest,
		"localhost:5000/lock-operator":                "localhost:5000/lock-operator@" + digest,
		"local":                                       "lock-operator:v1.2.3",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, output, err := packageRelease(t, "IMAGE="+name, "DIGEST="+digest)
			if err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			rendered, err := helm(t.Context(), "template", release, filepath.Join(folder, "lock-operator-1.2.3.tgz"))
			if err != nil {
				t.Fatal(err)
			}
			wantImage(t, "the chart", rendered, want)
			bundles, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
			if err != nil || len(bundles) == 0 {
				t.Fatalf("the bundles are %q: %v", bundles, err)
			}
			for _, path := range bundles {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				wantImage(t, filepath.Base(path), string(text), want)
			}
		})
	}
}

func wantImage(t *testing.T, where, manifests, want string) {
	t.Helper()
	found := image.FindAllStringSubmatch(manifests, -1)
	if len(found) < 3 {
		t.Errorf("%s has %d images", where, len(found))
	}
	for _, each := range found {
		if each[1] != want {
			t.Errorf("%s names the image %s, want %s", where, each[1], want)
		}
	}
}

func TestAReleaseWithoutARegistryIsRefused(t *testing.T) {
	for _, name := range []string{"", "lock-operator", "library/lock-operator", "registry.example.com", "registry.example.com/lock-operator:v1.2.3"} {
		_, output, err := packageRelease(t, "IMAGE="+name, "DIGEST=sha256:"+strings.Repeat("0", 64))
		if err == nil || !strings.Contains(output, "IMAGE") {
			t.Errorf("the image %q: %v, %q", name, err, output)
		}
	}
	if _, output, err := packageRelease(t, "IMAGE=registry.example.com/lock-operator"); err == nil || !strings.Contains(output, "DIGEST") {
		t.Errorf("no digest: %v, %q", err, output)
	}
}
