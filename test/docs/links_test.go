package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// relativeLink is a link of Markdown to a file of the tree, to a heading, or to both.
	relativeLink = regexp.MustCompile(`\]\(([\w./ç-]*\.\w+)?(?:#([\pL\d_-]+))?\)`)
	// named is how code, configuration and messages name a page.
	named = regexp.MustCompile(`\bdocs/([\w-]+\.md)(?:#([\w-]+))?`)
	// fenced is a block of code, which has no headings and no links.
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	// heading of a page, and what GitHub leaves out of its anchor.
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped = regexp.MustCompile(`[^\pL\d_ -]`)
)

// TestLinksLeadSomewhere fails if a link, or the name of a page of docs in any file, leads to a file or a heading that does not exist.
func TestLinksLeadSomewhere(t *testing.T) {
	count := 0
	anchors := map[string][]string{}
	check := func(from, to, anchor string) {
		count++
		if _, err := os.Stat(to); err != nil {
			t.Errorf("%s links %s, which does not exist", from, to)
			return
		}
		if anchor == "" || filepath.Ext(to) != ".md" {
			return
		}
		if anchors[to] == nil {
			anchors[to] = anchorsOf(t, to)
		}
		if !slices.Contains(anchors[to], anchor) {
			t.Errorf("%s links #%s of %s, which has no such heading", from, anchor, to)
		}
	}
	for _, path := range textFiles(t) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(content)
		for _, link := range named.FindAllStringSubmatch(text, -1) {
			check(path, filepath.Join(root, "docs", link[1]), link[2])
		}
		if filepath.Ext(path) != ".md" {
			continue
		}
		for _, link := range relativeLink.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			to := path
			if link[1] != "" {
				to = filepath.Join(filepath.Dir(path), link[1])
			}
			check(path, to, link[2])
		}
	}
	if count < 500 {
		t.Errorf("found %d links", count)
	}
}

func anchorsOf(t *testing.T, path string) (anchors []string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(string(content), ""), -1) {
		anchors = append(anchors, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-"))
	}
	return anchors
}
