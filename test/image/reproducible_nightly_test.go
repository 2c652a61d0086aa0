//go:build nightly

package image

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// In another folder, with other times of the files and at another time, the same commit gives the same images.
func TestNightlyBuildingAgainGivesTheSameImages(t *testing.T) {
	images, digest := open(t, filepath.Join(folder, "lock-operator.tar"))
	labels := images["amd64"].config.Config.Labels
	copied, out := t.TempDir(), t.TempDir()
	run(t.Context(), t, nil, "sh", "-c", `cd ../.. && git ls-files --cached --others --exclude-standard -z | xargs -0 cp --parents -t "$0"`, copied)
	run(t.Context(), t, []string{
		"VERSION=" + labels["org.opencontainers.image.version"],
		"REVISION=" + labels["org.opencontainers.image.revision"],
		"SOURCE_DATE_EPOCH=" + strings.TrimSpace(run(t.Context(), t, nil, "date", "--date="+labels["org.opencontainers.image.created"], "+%s")),
	}, filepath.Join(copied, "hack", "image.sh"), out)

	for _, title := range []string{"lock-operator", "kubectl-lock"} {
		first, err := os.ReadFile(filepath.Join(folder, title+".tar"))
		if err != nil {
			t.Fatal(err)
		}
		second, err := os.ReadFile(filepath.Join(out, title+".tar"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			_, again := open(t, filepath.Join(out, title+".tar"))
			t.Errorf("%s: the archives differ; the digests of lock-operator are %s and %s", title, digest, again)
		}
	}
}

// run returns the output of a command.
func run(ctx context.Context, t *testing.T, environment []string, name string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(ctx, name, arguments...)
	command.Env = append(os.Environ(), environment...)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, output)
	}
	return string(output)
}
