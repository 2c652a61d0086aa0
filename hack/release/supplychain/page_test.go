package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestThePackagesOfThePage(t *testing.T) {
	bundled, err := packagesOfPage("../../../web")
	packages := []string{"pkg:npm/%40scarf/scarf@1.", "pkg:npm/preact@10.", "pkg:npm/swagger-ui-dist@5."}
	if err != nil || len(bundled) != len(packages) {
		t.Fatalf("%+v: %v", bundled, err)
	}
	for i, each := range bundled {
		if err := checkLicenses(each.name(), each.licenses); err != nil {
			t.Error(err)
		}
		component := componentOf(each)
		if !strings.HasPrefix(component.PackageURL, packages[i]) || len(*component.Licenses) != 1 || len((*component.Hashes)[0].Value) != 128 {
			t.Errorf("%+v", component)
		}
	}
}

func TestAPageTellsWhatItIsMadeOf(t *testing.T) {
	const hash = "sha512-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="
	page := func(members, notice string) error {
		folder := t.TempDir()
		write := func(name, text string) {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("package-lock.json", `{"packages":{"":{"version":"1"},"node_modules/tool":{"dev":true},"node_modules/a/node_modules/@b/c":{"version":"1.2.3",`+members+`}}}`)
		write("src/NOTICE.txt", notice)
		bundled, err := packagesOfPage(folder)
		if err != nil {
			return err
		}
		return checkLicenses(bundled[0].name(), bundled[0].licenses)
	}
	for name, test := range map[string]struct{ members, notice, want string }{
		"all is there":      {`"license":"MIT","integrity":"` + hash + `"`, "The page contains @b/c", ""},
		"no licence":        {`"integrity":"` + hash + `"`, "The page contains @b/c", "has no licence"},
		"another licence":   {`"license":"GPL-3.0-only","integrity":"` + hash + `"`, "The page contains @b/c", "not among those allowed"},
		"no hash":           {`"license":"MIT"`, "The page contains @b/c", "has no hash"},
		"not in the notice": {`"license":"MIT","integrity":"` + hash + `"`, "another", "does not name @b/c"},
	} {
		err := page(test.members, test.notice)
		if (test.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
