package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// TestABinary is about the binary of this test, which has the libraries of this module. The module alone
// has no licence in its folder.
func TestABinary(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	err = run(t.Context(), ".", "", "", []string{binary})
	if err == nil || !strings.Contains(err.Error(), "forrst.dev/lock-operator/hack/release@(devel) has no licence") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("got %v", err)
	}
	linked, err := linkedModules(t.Context(), ".", binary)
	if err != nil {
		t.Fatal(err)
	}
	license := map[string]string{}
	for _, component := range *billOf(classified(t, linked)).Components {
		if licenses := *component.Licenses; len(licenses) > 0 {
			license[component.Name] = licenses[0].License.ID
		}
		if component.Version == "" || component.Hashes == nil && component.Name != standardLibrary && !strings.HasPrefix(component.Name, "forrst.dev/") {
			t.Errorf("%s has no version or hash", component.Name)
		}
	}
	for name, want := range map[string]string{standardLibrary: "BSD-3-Clause", "github.com/CycloneDX/cyclonedx-go": "Apache-2.0", "github.com/sergi/go-diff": "MIT"} {
		if license[name] != want {
			t.Errorf("%s: licence %q, want %q", name, license[name], want)
		}
	}
}

func classified(t *testing.T, linked program) program {
	t.Helper()
	classifier, err := newClassifier()
	if err != nil {
		t.Fatal(err)
	}
	for i := range linked.modules {
		if linked.modules[i].licenses, err = classifier.licensesIn(linked.modules[i].folder); err != nil {
			t.Fatal(err)
		}
	}
	return linked
}

func TestABillCanBeReadAndIsTheSameTwice(t *testing.T) {
	folder := t.TempDir()
	of := program{path: "example.com/program", version: "v1.2.3", modules: []module{{path: "example.com/library", version: "v1.0.0", sha256: "ab", licenses: []string{"MIT"}}}}
	var texts []string
	for _, name := range []string{"one", "two"} {
		path := filepath.Join(folder, name)
		if err := writeSBOM(path, of); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if texts[0] != texts[1] {
		t.Error("two bills of one program differ")
	}
	var bill cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(strings.NewReader(texts[0]), cyclonedx.BOMFileFormatJSON).Decode(&bill); err != nil {
		t.Fatal(err)
	}
	if got := (*bill.Components)[0].PackageURL; got != "pkg:golang/example.com/library@v1.0.0" {
		t.Errorf("package URL %s", got)
	}
}

func TestLicenses(t *testing.T) {
	classifier, err := newClassifier()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile("../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	const copyleft = "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License " +
		"as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version."
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"one that is allowed":      {map[string]string{"LICENSE": string(ours)}, ""},
		"in British spelling":      {map[string]string{"licence.md": string(ours)}, ""},
		"none":                     {map[string]string{"README": "free for all"}, "m has no licence"},
		"a file of code":           {map[string]string{"license_test.go": "package m"}, "m has no licence"},
		"one that is not":          {map[string]string{"COPYING": copyleft}, "not among those allowed"},
		"a text that is unknown":   {map[string]string{"LICENSE": "Do as you please."}, "unknown (LICENSE)"},
		"a second one that is not": {map[string]string{"LICENSE": string(ours), "LICENSE.data": "Ask us."}, "unknown (LICENSE.data)"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for file, text := range test.files {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			licenses, err := classifier.licensesIn(folder)
			if err != nil {
				t.Fatal(err)
			}
			err = checkLicenses("m", licenses)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q: got %v, want %q", licenses, err, test.want)
			}
			if !slices.IsSorted(licenses) {
				t.Errorf("%q are not in order", licenses)
			}
		})
	}
}
