//go:build unix

package tokenfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forrst.dev/lock-operator/cli/tokenfile"
)

func TestFollowsNoLink(t *testing.T) {
	folder := t.TempDir()
	target := filepath.Join(folder, "target")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(folder, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if _, err := (tokenfile.Place{Path: link}).Prepare(); err == nil {
		t.Error("a token would be written to a link")
	}
}

func TestRefusesAFolderThatOthersCanRead(t *testing.T) {
	place := defaultPlace(t)
	keep(t, place)
	if err := os.Chmod(filepath.Dir(place.Path), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := place.Prepare(); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("to write: %v", err)
	}
	if _, err := place.Read(); err == nil {
		t.Error("it would be read")
	}
}
