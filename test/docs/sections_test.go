package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// citation is how comments and documents name a section of a document. A document that
	// cites its own sections leaves its name out.
	citation = regexp.MustCompile(`(?:([\w-]+\.md)\)?, )?sections? (\d+(?:\.\d+)*)`)
	// numbered is a heading, or a bold item of a list, that begins with a number.
	numbered = regexp.MustCompile(`(?m)^(?:#{2,} |- \*\*)(\d+(?:\.\d+)*)\.? `)
	// commentBreak joins the lines of a comment, which a citation may span.
	commentBreak = regexp.MustCompile(`\n[ \t]*(?://|#)?[ \t]*`)
)

// TestSections fails if a file cites a section that its document does not have, or if code
// cites a section without the document.
func TestSections(t *testing.T) {
	sections := map[string][]string{}
	citations := 0
	for _, path := range textFiles(t) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := commentBreak.ReplaceAllString(string(content), " ")
		for _, cited := range citation.FindAllStringSubmatch(text, -1) {
			document, section := cited[1], cited[2]
			if document == "" && filepath.Dir(path) == filepath.Join(root, "docs") {
				document = filepath.Base(path)
			}
			if document == "" {
				if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
					t.Errorf("%s cites section %s without its document", path, section)
				}
				continue
			}
			if sections[document] == nil {
				sections[document] = sectionsOf(t, document)
			}
			citations++
			if !slices.Contains(sections[document], section) {
				t.Errorf("%s cites section %s of docs/%s, which has none of that number", path, section, document)
			}
		}
	}
	if citations == 0 {
		t.Error("no file cites a section")
	}
}

// sectionsOf returns the numbers of the sections of a document.
func sectionsOf(t *testing.T, document string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "docs", document))
	if err != nil {
		t.Fatal(err)
	}
	var numbers []string
	for _, heading := range numbered.FindAllStringSubmatch(string(content), -1) {
		numbers = append(numbers, heading[1])
	}
	return numbers
}

// textFiles returns the paths of the hand-written files that may cite documents.
func textFiles(t *testing.T) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin" || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case slices.Contains([]string{".go", ".md", ".yaml"}, filepath.Ext(path)):
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
