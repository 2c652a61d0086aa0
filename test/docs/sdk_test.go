package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheFirstLockCompiles finds each line of the first program of docs/sdk.md in a test of the engine.
func TestTheFirstLockCompiles(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "sdk.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(root, "lock", "engine", "example_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## The first lock\n\n```go\n")
	program, _, isThere := strings.Cut(rest, "```")
	if !isThere {
		t.Fatal("the page has no first lock")
	}
	for line := range strings.Lines(program) {
		if !strings.Contains(string(source), line) {
			t.Errorf("not in the test: %s", line)
		}
	}
}
