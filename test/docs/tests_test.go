// Package docs_test holds the documents against the tree.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// cited are the parts of a cell that names tests: a file, a Go test, and a spec or a case.
var cited = regexp.MustCompile("`([\\w./-]+\\.go)`|`((?:Test|Fuzz)\\w+)`|\"([^\"]+)\"")

// TestThreatsHaveTests fails if test/threats.md has a threat without a test, or names a
// test that does not exist.
func TestThreatsHaveTests(t *testing.T) {
	if rows := checkTables(t, "test/threats.md", 3, "| threat |"); rows < 50 {
		t.Errorf("the page has %d threats", rows)
	}
}

// TestRequirementsOfREST does the same for test/rest/README.md.
func TestRequirementsOfREST(t *testing.T) {
	if rows := checkTables(t, "test/rest/README.md", 2, "| requirement |", "| promise |"); rows < 15 {
		t.Errorf("the page has %d requirements", rows)
	}
}

// TestStatesAndToolsOfGitOps does the same for test/gitops/README.md.
func TestStatesAndToolsOfGitOps(t *testing.T) {
	rows := checkTables(t, "test/gitops/README.md", 3, "| what happens |", "| tool |")
	rows += checkTables(t, "test/gitops/README.md", 4, "| state of the Lock |")
	rows += checkTables(t, "test/gitops/README.md", 5, "| state of the Job |")
	if rows < 35 {
		t.Errorf("the page has %d states and tools", rows)
	}
}

// checkTables fails if a row of the tables with these heads names no test in its last column, or one that
// does not exist. It returns how many rows there are.
func checkTables(t *testing.T, document string, columns int, heads ...string) (rows int) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(document)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]map[string]bool{}
	isInTable := false
	for line := range strings.Lines(string(page)) {
		switch {
		case slices.ContainsFunc(heads, func(head string) bool { return strings.HasPrefix(line, head) }):
			isInTable = true
			continue
		case !strings.HasPrefix(line, "|"):
			isInTable = false
		}
		if !isInTable || strings.HasPrefix(line, "| ---") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != columns {
			t.Errorf("%d cells in %s", len(cells), line)
			continue
		}
		names, file := 0, ""
		for _, part := range cited.FindAllStringSubmatch(cells[columns-1], -1) {
			if part[1] != "" {
				if file = part[1]; files[file] == nil {
					files[file] = namesIn(t, file)
				}
				continue
			}
			names++
			if name := part[2] + part[3]; !files[file][name] {
				t.Errorf("there is no %q in %q", name, file)
			}
		}
		if names == 0 {
			t.Errorf("no test of: %s", cells[0])
		}
	}
	return rows
}

// namesIn returns the names of the Go tests of a file, of its specs, and of the cases in
// its tables.
func namesIn(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(path)), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	add := func(expression ast.Expr) {
		// Of a name that is put together, the beginning.
		for binary, ok := expression.(*ast.BinaryExpr); ok; binary, ok = expression.(*ast.BinaryExpr) {
			expression = binary.X
		}
		if literal, ok := expression.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if name, err := strconv.Unquote(literal.Value); err == nil {
				names[name] = true
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			names[node.Name.Name] = true
		case *ast.KeyValueExpr:
			add(node.Key)
		case *ast.CallExpr:
			if called, ok := node.Fun.(*ast.Ident); ok && isNode[called.Name] && len(node.Args) > 0 {
				add(node.Args[0])
			}
		}
		return true
	})
	return names
}

// isNode are the functions of Ginkgo that give names.
var isNode = map[string]bool{"Describe": true, "DescribeTable": true, "Context": true, "It": true, "Entry": true}
