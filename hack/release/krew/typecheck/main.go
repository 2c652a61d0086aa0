// Command typecheck says whether packages compile on a platform, without compiling them: "go vet" has to
// compile all that they import first, which takes minutes of processor time for each platform. This takes
// seconds: of imported modules it reads the declarations alone.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	folder := flag.String("C", ".", "folder of the module")
	platform := flag.String("platform", "", "such as windows/arm64")
	flag.Parse()
	system, architecture, isPlatform := strings.Cut(*platform, "/")
	if !isPlatform || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: typecheck -C FOLDER -platform OS/ARCH PACKAGES")
		os.Exit(2)
	}
	if count, err := check(*folder, system, architecture, flag.Args()); err != nil || count == 0 {
		fmt.Fprintf(os.Stderr, "%s: %d packages: %v\n", *platform, count, err)
		os.Exit(1)
	}
}

// check returns how many packages there are, and the first error in one of them.
func check(folder, system, architecture string, patterns []string) (count int, err error) {
	root, err := filepath.Abs(folder)
	if err != nil {
		return 0, err
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedModule,
		Dir: root,
		Env: append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture),
		ParseFile: func(files *token.FileSet, name string, content []byte) (*ast.File, error) {
			if strings.HasPrefix(name, root+string(filepath.Separator)) {
				return parser.ParseFile(files, name, content, parser.SkipObjectResolution)
			}
			file, err := parser.ParseFile(files, name, content, parser.SkipObjectResolution)
			if file != nil {
				withoutBodies(file)
			}
			return file, err
		},
	}, patterns...)
	if err != nil {
		return 0, err
	}
	// Others have errors that this way of reading makes, such as imports that only bodies use.
	packages.Visit(loaded, nil, func(each *packages.Package) {
		if isOwn := each.Module != nil && each.Module.Main; isOwn && err == nil && len(each.Errors) > 0 {
			err = each.Errors[0]
		}
	})
	return len(loaded), err
}

// withoutBodies takes the bodies of functions away, which do not matter to importers.
func withoutBodies(file *ast.File) {
	for _, declaration := range file.Decls {
		if function, isFunction := declaration.(*ast.FuncDecl); isFunction {
			function.Body = nil
		}
	}
}
