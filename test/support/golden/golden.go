// Package golden compares what programs print with files.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// Check fails the test unless got is what testdata/NAME has. With the flag -update it
// writes the file instead.
func Check(t *testing.T, name, got string) {
	t.Helper()
	CheckFile(t, filepath.Join("testdata", filepath.FromSlash(name)), got)
}

// CheckFile is [Check] with any file.
func CheckFile(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test with -update writes it", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s; if that is right, go test with -update (-want +got):\n%s", path, diff)
	}
}
