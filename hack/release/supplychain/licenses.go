package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	licenseclassifier "github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"
)

// allowed are the licences, by their names in SPDX, under which others may use and pass on the binary
// without publishing their own code.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// licenseFile matches the names of files with the licence of a module.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([-._].*)?$`)

// classifier tells licences by their texts.
type classifier struct{ *licenseclassifier.Classifier }

func newClassifier() (classifier, error) {
	loaded, err := assets.DefaultClassifier()
	if err != nil {
		return classifier{}, fmt.Errorf("load the texts of licences: %w", err)
	}
	return classifier{loaded}, nil
}

// licensesIn returns the names of the licences in the files of a folder, in order. A file without a known
// licence counts as one of that file's name.
func (c classifier) licensesIn(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !licenseFile.MatchString(entry.Name()) || filepath.Ext(entry.Name()) == ".go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		found = append(found, c.licensesOf(entry.Name(), text)...)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

func (c classifier) licensesOf(file string, text []byte) (found []string) {
	for _, match := range c.Match(text).Matches {
		if match.MatchType == "License" {
			found = append(found, match.Name)
		}
	}
	if len(found) == 0 {
		return []string{"unknown (" + file + ")"}
	}
	return found
}

// checkLicenses returns an error unless there is a licence and all are allowed.
func checkLicenses(module string, licenses []string) error {
	if len(licenses) == 0 {
		return fmt.Errorf("%s has no licence", module)
	}
	refused := slices.DeleteFunc(slices.Clone(licenses), func(license string) bool { return slices.Contains(allowed, license) })
	if len(refused) > 0 {
		return fmt.Errorf("%s: the licence %s is not among those allowed, %s", module, strings.Join(refused, ", "), strings.Join(allowed, ", "))
	}
	return nil
}
