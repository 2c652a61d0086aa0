// Package envelope is the Forrst 0.1.0 protocol: envelopes, errors, durations, versions and extension names. It knows neither
// HTTP servers nor locks, and serves both ends of a call.
//
// What was sent is never reinterpreted on the way: arguments, options, results and details are [encoding/json.RawMessage], so
// that numbers keep their digits and unknown members survive.
//
// The decoder is that of package strictjson: in objects that the protocol defines, a member that is read must not be given
// twice. Members that are not read, such as those of context, are passed over.
package envelope

import (
	"regexp"
	"strings"

	"forrst.dev/lock-operator/lock/strictjson"
)

const (
	// ProtocolName is the name of the protocol.
	ProtocolName = "forrst"
	// ProtocolVersion is the version of the protocol that this package speaks. It understands every version with the same
	// major number (docs/forrst.md, section 6.1).
	ProtocolVersion = "0.1.0"
	// supported begins every version with the major number of ProtocolVersion.
	supported = "0."
)

// Protocol says which protocol a message speaks.
type Protocol struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Spoken is the protocol of the messages that are sent.
var Spoken = Protocol{Name: ProtocolName, Version: ProtocolVersion}

// readProtocol reads the protocol of a message: an object, or a text such as "forrst/0.1", which two pages of the protocol
// mention. It returns a version that is not spoken as a refusal of its own. The version of another protocol is not judged:
// nothing is known about it.
func readProtocol(envelope *Fields) (protocol Protocol, refusal *Error) {
	envelope.Require("protocol")
	raw, pointer := envelope.Raw("protocol"), "/protocol"
	isForrst := false
	if raw != nil && raw[0] == '"' {
		protocol.Name, protocol.Version, _ = strings.Cut(string(strictjson.Unquote(raw)), "/")
		protocol.Version += ".0"
		isForrst = protocol.Name == ProtocolName && isVersion(protocol.Version)
	}
	if !isForrst {
		pointer, protocol = "/protocol/version", Protocol{}
		fields, ok := envelope.Nested("protocol", "must be an object with name and version")
		if !ok {
			return protocol, nil
		}
		protocol.Name, ok = fields.RequiredText("name")
		if isForrst = protocol.Name == ProtocolName; ok && !isForrst {
			fields.Fail("name", `must be "forrst"`)
		}
		protocol.Version, ok = fields.RequiredText("version")
		if ok && !isVersion(protocol.Version) {
			fields.Fail("version", "must be a semantic version such as 0.1.0")
			ok = false
		}
		isForrst = isForrst && ok
	}
	if !isForrst || strings.HasPrefix(protocol.Version, supported) {
		return protocol, nil
	}
	return protocol, new(Error{Code: InvalidProtocolVersion, Message: "Protocol version " + protocol.Version + " is not supported"}.
		At(pointer).With(struct {
		Requested string   `json:"requested"`
		Supported []string `json:"supported"`
	}{protocol.Version, []string{ProtocolVersion}}))
}

// semver is the grammar of Semantic Versioning 2.0.0.
var semver = regexp.MustCompile(`^(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)` +
	`(?:-(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?$`)

// maxVersion is the longest version in bytes, as in other implementations of semantic versions: matching costs far more
// than reading, and requests can be large.
const maxVersion = 256

func isVersion(text string) bool { return len(text) <= maxVersion && semver.MatchString(text) }

// FunctionVersion returns the version that text in a call asks for, in full: old clients write "1" for "1.0.0". It reports
// false if text is not a semantic version (docs/forrst.md, section 6.2), or has more than 256 bytes.
func FunctionVersion(text string) (string, bool) {
	if !strings.Contains(text, ".") {
		text += ".0.0"
	}
	return text, isVersion(text)
}
