package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// folderOfPackages is before the name of a package in the lock file.
const folderOfPackages = "node_modules/"

// packagesOfPage returns the packages of npm that are bundled into a page, by the lock file in its folder, with
// their licences as their authors state them. The page passes them on, so its file src/NOTICE.txt must name each.
func packagesOfPage(folder string) ([]module, error) {
	text, err := os.ReadFile(filepath.Join(folder, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	notice, err := os.ReadFile(filepath.Join(folder, "src", "NOTICE.txt"))
	if err != nil {
		return nil, err
	}
	var locked struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Integrity string `json:"integrity"`
			License   string `json:"license"`
			IsDev     bool   `json:"dev"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(text, &locked); err != nil {
		return nil, fmt.Errorf("read the packages of %s: %w", folder, err)
	}
	var bundled []module
	for _, path := range slices.Sorted(maps.Keys(locked.Packages)) {
		each := locked.Packages[path]
		if each.IsDev || !strings.Contains(path, folderOfPackages) {
			continue
		}
		name := path[strings.LastIndex(path, folderOfPackages)+len(folderOfPackages):]
		hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(each.Integrity, "sha512-"))
		if err != nil || len(hash) != 64 {
			return nil, fmt.Errorf("%s@%s has no hash of SHA-512", name, each.Version)
		}
		if !strings.Contains(strings.ToLower(string(notice)), strings.ToLower(name)) {
			return nil, fmt.Errorf("%s/src/NOTICE.txt does not name %s", folder, name)
		}
		found := module{path: name, version: each.Version, sha512: hex.EncodeToString(hash)}
		if each.License != "" {
			found.licenses = []string{each.License}
		}
		bundled = append(bundled, found)
	}
	return bundled, nil
}
