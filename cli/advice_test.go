package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"forrst.dev/lock-operator/cli/session"
)

// typed is a command to type in a text. Prose such as "kubectl lock run has started it" is none.
var typed = regexp.MustCompile(`: kubectl |^"kubectl lock \w+ [A-Z]|kubectl (get|describe|apply|label|delete|annotate|patch|logs|create)\b`)

func TestEveryCommandToTypeIsMadeWithTheFlagsOfTheSession(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.KeyValueExpr:
				if key, ok := node.Key.(*ast.Ident); ok && (key.Name == "Long" || key.Name == "Example") {
					return false // Of no session.
				}
			case *ast.BasicLit:
				if node.Kind == token.STRING && typed.MatchString(node.Value) {
					t.Errorf("%s: %s has a command to type, which Session.Command or Session.Kubectl is to make", files.Position(node.Pos()), node.Value)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheAdviceOfFreezeIsOfTheNamespaceThatItNames(t *testing.T) {
	options := session.Options{Cluster: as("carol@example.com", everything, fakeCluster(payments()...))}
	got := run(t, options, "freeze", "payments", "--until", "1h", "--key", "billing:report", "--context", "far")
	if want := "see more: kubectl lock who billing:report -n payments --context far\n"; !strings.Contains(got.errOut, want) {
		t.Errorf("it says %s, want %s", got, want)
	}
}
