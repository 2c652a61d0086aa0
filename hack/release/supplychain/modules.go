package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// standardLibrary is the name under which Go's library counts as a module.
const standardLibrary = "std"

// program is a binary and the modules that are linked into it: its own first, then Go's library.
type program struct {
	path, version string
	modules       []module
}

// module is one module of a program, or one package of npm in the page that it serves.
type module struct {
	path, version string
	// sha256 is the hash of the module's content in hexadecimal, as go.sum has it; empty if it has none.
	sha256 string
	// sha512 is that of the archive of a package of npm. Empty for a module of Go.
	sha512 string
	// folder has the sources.
	folder   string
	licenses []string
}

func (m module) name() string { return strings.TrimSuffix(m.path+"@"+m.version, "@") }

// linkedModules returns what is linked into the binary. The folder is that of the module whose go.mod has
// chosen the versions.
func linkedModules(ctx context.Context, folder, binary string) (program, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return program{}, fmt.Errorf("read what is linked into %s: %w", binary, err)
	}
	folders, err := moduleFolders(ctx, folder)
	if err != nil {
		return program{}, err
	}
	root, err := output(ctx, folder, "go", "env", "GOROOT")
	if err != nil {
		return program{}, err
	}
	linked := program{path: info.Path, version: info.Main.Version, modules: []module{
		{path: info.Main.Path, version: info.Main.Version},
		{path: standardLibrary, version: info.GoVersion, folder: strings.TrimSpace(string(root))},
	}}
	for _, dependency := range info.Deps {
		if dependency.Replace != nil {
			dependency = dependency.Replace
		}
		linked.modules = append(linked.modules, module{path: dependency.Path, version: dependency.Version, sha256: hashOf(dependency.Sum)})
	}
	for i := range linked.modules {
		each := &linked.modules[i]
		if each.folder == "" {
			each.folder = folders[each.path]
		}
		if each.folder == "" {
			return program{}, fmt.Errorf("%s is linked into %s, but go.mod in %s does not choose it, or it is not downloaded", each.name(), binary, folder)
		}
	}
	return linked, nil
}

// moduleFolders returns where the sources of all modules are.
func moduleFolders(ctx context.Context, folder string) (map[string]string, error) {
	listed, err := output(ctx, folder, "go", "list", "-m", "-json=Path,Dir", "all")
	if err != nil {
		return nil, err
	}
	folders := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(listed)); ; {
		var each struct {
			Path string `json:"Path"`
			Dir  string `json:"Dir"`
		}
		switch err := decoder.Decode(&each); {
		case errors.Is(err, io.EOF):
			return folders, nil
		case err != nil:
			return nil, fmt.Errorf("read the list of modules: %w", err)
		}
		folders[each.Path] = each.Dir
	}
}

// hashOf returns a hash of go.sum in hexadecimal.
func hashOf(sum string) string {
	encoded, ok := strings.CutPrefix(sum, "h1:")
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil {
		return ""
	}
	return hex.EncodeToString(decoded)
}

func output(ctx context.Context, folder string, command ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = folder
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, bytes.TrimSpace(problems.Bytes()))
	}
	return out, nil
}
