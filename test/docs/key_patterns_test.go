package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// TestPatternsOfKeysAcceptWhatTheRuleAccepts compares the patterns in the schema of the Lock and in the documents of both doors with
// the rule, for each character at each place.
func TestPatternsOfKeysAcceptWhatTheRuleAccepts(t *testing.T) {
	const crd, openAPI, forrst = "config/crd/bases/forrst.dev_locks.yaml", "facade/rest/openapi.yaml", "facade/forrst/describe/functions.yaml"
	spec := []any{"spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec", "properties"}
	for name, pattern := range map[string]*regexp.Regexp{
		"spec.key":      patternIn(t, crd, append(slices.Clip(spec), "key")),
		"spec.function": patternIn(t, crd, append(slices.Clip(spec), "function")),
		openAPI:         patternIn(t, openAPI, []any{"components", "schemas", "Key"}),
		forrst:          patternIn(t, forrst, []any{"shared", 6}),
	} {
		t.Run(name, func(t *testing.T) {
			for char := range rune(0xe1000) {
				if char >= 0x20000 && char < 0xe0000 || !utf8.ValidRune(char) {
					continue // Ideographs, and what has no character.
				}
				for _, text := range []string{string(char), "a" + string(char), string(char) + "a", "a" + string(char) + "a"} {
					if got, want := pattern.MatchString(text), v1alpha1.ValidateKey(text) == nil; got != want {
						t.Fatalf("%U in %q: matches %t, want %t", char, text, got, want)
					}
				}
			}
		})
	}
}

// patternIn returns the pattern of the schema at the path in a file.
func patternIn(t *testing.T, file string, path []any) *regexp.Regexp {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	var within any
	if err := yaml.Unmarshal(text, &within); err != nil {
		t.Fatal(err)
	}
	for _, step := range append(slices.Clip(path), "pattern") {
		switch step := step.(type) {
		case string:
			object, _ := within.(map[string]any)
			within = object[step]
		case int:
			list, _ := within.([]any)
			if step >= len(list) {
				t.Fatalf("%s has no %v", file, path)
			}
			within = list[step]
		}
	}
	pattern, _ := within.(string)
	compiled, err := regexp.Compile(pattern)
	if err != nil || pattern == "" {
		t.Fatalf("%s, %v: %q, %v", file, path, pattern, err)
	}
	return compiled
}
