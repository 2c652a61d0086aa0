package envelope

import "regexp"

// semver is the grammar of Semantic Versioning 2.0.0.
var semver = regexp.MustCompile(`^(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)` +
	`(?:-(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?$`)

// maxVersion is the longest version in bytes, as in other implementations of semantic
// versions: matching costs far more than reading, and requests can be large.
const maxVersion = 256

// integer matches a number as semantic versions write it.
var integer = regexp.MustCompile(`^(?:0|[1-9]\d*)$`)

// FunctionVersion returns the version that text in a call asks for, in full: old
// clients write "1" for "1.0.0". It reports false if text is not a semantic version
// (docs/forrst.md, section 6.2), or has more than 256 bytes.
func FunctionVersion(text string) (string, bool) {
	if len(text) <= maxVersion && integer.MatchString(text) {
		text += ".0.0"
	}
	return text, isVersion(text)
}

func isVersion(text string) bool { return len(text) <= maxVersion && semver.MatchString(text) }
