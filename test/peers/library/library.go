// Package library makes the copies of other libraries that adapters are compiled in.
package library

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Changes is what the copy of a library has in place of its own code.
type Changes struct {
	// Module is the module's path. Its version is that of go.mod.
	Module string
	// File is the Go file that loses declarations, below the module's folder.
	File string
	// Without names them. A method is named with its type, as in "Lock.Release".
	Without []string
	// Adapter is the file that declares them anew, and is put beside that file.
	Adapter string
	// Imports has the paths of packages that others take the place of, in the file and in the tests beside it.
	Imports map[string]string
	// TestImports is the same for the tests alone.
	TestImports map[string]string
}

// Copy writes the changed copy of the library to a folder, which it replaces.
func Copy(ctx context.Context, folder string, changes Changes) error {
	downloaded, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", changes.Module).Output()
	if err != nil {
		return fmt.Errorf("download %s: %w: %s", changes.Module, err, downloaded)
	}
	var source struct {
		Dir string `json:"Dir"`
	}
	if err := json.Unmarshal(downloaded, &source); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.CopyFS(folder, os.DirFS(source.Dir)); err != nil {
		return err
	}
	path := filepath.Join(folder, changes.File)
	if err := change(path, changes.Imports, changes.Without); err != nil {
		return err
	}
	tests, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*_test.go"))
	if err != nil {
		return err
	}
	imports := maps.Clone(changes.Imports)
	maps.Copy(imports, changes.TestImports)
	for _, test := range tests {
		if err := change(test, imports, nil); err != nil {
			return err
		}
	}
	adapter, err := os.ReadFile(changes.Adapter)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(path), "adapter.go"), adapter, 0o600)
}

// edit replaces a part of a file.
type edit struct {
	from, to int
	by       string
}

// change replaces imports, and takes declarations away with the imports that only they have used. Everything else
// stays as it is, byte by byte.
func change(path string, imports map[string]string, without []string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	var edits []edit
	remove := func(node ast.Node) {
		edits = append(edits, edit{from: files.Position(node.Pos()).Offset, to: files.Position(node.End()).Offset})
	}
	names := slices.Clone(without)
	used := map[string]bool{}
	for _, declaration := range parsed.Decls {
		var removed []ast.Node
		removed, names = declared(declaration, names)
		for _, node := range removed {
			remove(node)
		}
		addUsed(used, declaration, removed)
	}
	if len(names) > 0 {
		return fmt.Errorf("%s does not declare %s", path, strings.Join(names, ", "))
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		name := packageName(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name != "." && name != "_" && !used[name] {
			remove(spec)
			continue
		}
		if replacement, ok := imports[imported]; ok {
			edits = append(edits, edit{
				from: files.Position(spec.Pos()).Offset, to: files.Position(spec.End()).Offset,
				by: fmt.Sprintf("%s %q", name, replacement),
			})
		}
	}
	return os.WriteFile(path, apply(text, edits), 0o600)
}

// addUsed adds the names of packages that a declaration uses outside its removed parts.
func addUsed(used map[string]bool, declaration ast.Decl, removed []ast.Node) {
	ast.Inspect(declaration, func(node ast.Node) bool {
		if slices.Contains(removed, node) {
			return false
		}
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if name, ok := selector.X.(*ast.Ident); ok {
				used[name.Name] = true
			}
		}
		return true
	})
}

// declared returns the parts of a declaration that have one of the names, and the other names.
func declared(declaration ast.Decl, names []string) (parts []ast.Node, others []string) {
	switch declaration := declaration.(type) {
	case *ast.FuncDecl:
		if i := slices.Index(names, functionName(declaration)); i >= 0 {
			return []ast.Node{declaration}, slices.Delete(names, i, i+1)
		}
	case *ast.GenDecl:
		for _, spec := range declaration.Specs {
			var name string
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				name = spec.Name.Name
			case *ast.ValueSpec:
				name = spec.Names[0].Name
			}
			if i := slices.Index(names, name); i >= 0 {
				parts, names = append(parts, spec), slices.Delete(names, i, i+1)
			}
		}
		if len(parts) > 0 && len(parts) == len(declaration.Specs) {
			return []ast.Node{declaration}, names
		}
	}
	return parts, names
}

func functionName(function *ast.FuncDecl) string {
	if function.Recv == nil {
		return function.Name.Name
	}
	receiver := function.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	return fmt.Sprintf("%s.%s", receiver, function.Name.Name)
}

// packageName guesses the name of a package from its path, as it is for all that the libraries import.
func packageName(path string) string {
	last := path[strings.LastIndex(path, "/")+1:]
	if _, err := strconv.Atoi(strings.TrimPrefix(last, "v")); err == nil && strings.HasPrefix(last, "v") {
		return packageName(strings.TrimSuffix(path, "/"+last))
	}
	return strings.TrimPrefix(last, "go-")
}

func apply(text []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var changed bytes.Buffer
	end := 0
	for _, edit := range edits {
		changed.Write(text[end:edit.from])
		changed.WriteString(edit.by)
		end = edit.to
	}
	changed.Write(text[end:])
	return changed.Bytes()
}

// ModFile writes a copy of go.mod that takes libraries from folders, for -modfile. Folders are by module.
func ModFile(ctx context.Context, path string, folders map[string]string) error {
	for _, name := range []string{"mod", "sum"} {
		text, err := os.ReadFile("go." + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(strings.TrimSuffix(path, "mod")+name, text, 0o600); err != nil {
			return err
		}
	}
	for module, folder := range folders {
		output, err := exec.CommandContext(ctx, "go", "mod", "edit", "-replace="+module+"="+folder, path).CombinedOutput()
		if err != nil {
			return errors.Join(err, errors.New(string(output)))
		}
	}
	return nil
}
