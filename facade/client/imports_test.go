package client_test

import (
	"os/exec"
	"strings"
	"testing"
)

// maxImports is how many packages, those of Go included, a program with a client may have to build. The
// types of the Lock and what they import are 268 of them.
const maxImports = 296

// TestLightToImport holds what a program gets with a client of a façade, or with the backend for its tests.
func TestLightToImport(t *testing.T) {
	for _, root := range []string{"forrst.dev/lock-operator/facade/client", "forrst.dev/lock-operator/lock/locktest"} {
		listed, err := exec.CommandContext(t.Context(), "go", "list", "-deps", root).Output()
		if err != nil {
			t.Fatal(err)
		}
		imports := strings.Fields(string(listed))
		if len(imports) > maxImports {
			t.Errorf("%s imports %d packages, want at most %d", root, len(imports), maxImports)
		}
		for _, imported := range imports {
			for _, heavy := range []string{"k8s.io/client-go/", "k8s.io/api/", "sigs.k8s.io/controller-runtime/", "github.com/prometheus/"} {
				if strings.HasPrefix(imported, heavy) {
					t.Errorf("%s imports %s", root, imported)
				}
			}
		}
	}
}
