package forrst_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestConformanceTable fails if CONFORMANCE.md names a test that does not exist.
func TestConformanceTable(t *testing.T) {
	document, err := os.ReadFile("CONFORMANCE.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, pattern := range []string{"*_test.go", "*/*_test.go", "../client/*_test.go", "../server/*_test.go", "../../lock/bodies/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(source)
		}
	}
	names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(document), -1)
	if len(names) < 50 {
		t.Fatalf("the table names %d tests", len(names))
	}
	for _, name := range names {
		if !strings.Contains(sources.String(), "\nfunc "+name[1]+"(") {
			t.Errorf("there is no %s", name[1])
		}
	}
}
