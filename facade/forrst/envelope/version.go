package envelope

import (
	"cmp"
	"regexp"
	"strings"
)

// semver is the grammar of Semantic Versioning 2.0.0.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?` +
	`(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$`)

// maxVersion is the longest version in bytes, as in other implementations of semantic
// versions: matching costs far more than reading, and requests can be large.
const maxVersion = 256

// integer matches a number as semantic versions write it.
var integer = regexp.MustCompile(`^(0|[1-9]\d*)$`)

// Version is a semantic version (section 6.2). The zero Version is none.
type Version struct {
	text       string
	core       [3]string
	prerelease string
}

// ParseVersion reads a semantic version. It reports false if text is none, or has more
// than 256 bytes.
func ParseVersion(text string) (Version, bool) {
	if len(text) > maxVersion {
		return Version{}, false
	}
	parts := semver.FindStringSubmatch(text)
	if parts == nil {
		return Version{}, false
	}
	return Version{text: text, core: [3]string(parts[1:4]), prerelease: parts[4]}, true
}

// FunctionVersion returns the version that text in a call asks for, in full: old
// clients write "1" for "1.0.0". It reports false if text is no version.
func FunctionVersion(text string) (string, bool) {
	if len(text) <= maxVersion && integer.MatchString(text) {
		text += ".0.0"
	}
	return text, isVersion(text)
}

func isVersion(text string) bool { return len(text) <= maxVersion && semver.MatchString(text) }

// String returns the version in full.
func (v Version) String() string { return v.text }

// IsStable reports whether the version has no prerelease tag.
func (v Version) IsStable() bool { return v.prerelease == "" }

// Stability returns "stable" without a prerelease tag, "beta" or "rc" if it begins so, and
// "alpha" for all others.
func (v Version) Stability() string {
	if v.IsStable() {
		return "stable"
	}
	for _, stability := range []string{"beta", "rc"} {
		if strings.HasPrefix(v.prerelease, stability) {
			return stability
		}
	}
	return "alpha"
}

// Compare returns -1, 0 or 1 as v precedes, equals or follows w in the order of
// Semantic Versioning, which ignores build metadata.
func (v Version) Compare(w Version) int {
	for i := range v.core {
		if order := compareNumbers(v.core[i], w.core[i]); order != 0 {
			return order
		}
	}
	if v.IsStable() || w.IsStable() {
		return cmp.Compare(rank(v), rank(w))
	}
	return comparePrereleases(strings.Split(v.prerelease, "."), strings.Split(w.prerelease, "."))
}

// rank puts a release behind its prereleases.
func rank(v Version) int {
	if v.IsStable() {
		return 1
	}
	return 0
}

func comparePrereleases(v, w []string) int {
	for i := range min(len(v), len(w)) {
		if order := compareIdentifiers(v[i], w[i]); order != 0 {
			return order
		}
	}
	return cmp.Compare(len(v), len(w))
}

// compareIdentifiers puts numbers before words.
func compareIdentifiers(v, w string) int {
	switch vIsNumber, wIsNumber := integer.MatchString(v), integer.MatchString(w); {
	case vIsNumber && wIsNumber:
		return compareNumbers(v, w)
	case vIsNumber:
		return -1
	case wIsNumber:
		return 1
	}
	return cmp.Compare(v, w)
}

// compareNumbers compares numbers of any size that have no leading zeros.
func compareNumbers(v, w string) int {
	return cmp.Or(cmp.Compare(len(v), len(w)), cmp.Compare(v, w))
}
