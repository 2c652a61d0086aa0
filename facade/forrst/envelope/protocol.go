package envelope

import (
	"encoding/json"
	"strings"

	"forrst.dev/lock-operator/lock/strictjson"
)

const (
	// ProtocolName is the name of the protocol.
	ProtocolName = "forrst"
	// ProtocolVersion is the version of the protocol that this package speaks. It
	// understands every version with the same major number (docs/forrst.md, section 6.1).
	ProtocolVersion = "0.1.0"
	// supportedMajor is the major number of ProtocolVersion.
	supportedMajor = "0"
)

// Protocol says which protocol a message speaks.
type Protocol struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// readProtocol reads the protocol of a message. It returns a version that is not spoken as a refusal of its own.
func readProtocol(envelope *Fields) (protocol Protocol, refusal *Error) {
	envelope.Require("protocol")
	raw, pointer := envelope.Raw("protocol"), "/protocol"
	protocol, ok := protocolText(raw)
	if !ok && raw != nil {
		var fields Fields
		if fields, ok = envelope.Nested("protocol", "must be an object with name and version"); ok {
			protocol, ok = protocolObject(&fields)
		}
		pointer = "/protocol/version"
	}
	if !ok || protocol.Version == ProtocolVersion {
		return protocol, nil
	}
	if major, _, _ := strings.Cut(protocol.Version, "."); major == supportedMajor {
		return protocol, nil
	}
	return protocol, unspoken(protocol.Version, pointer)
}

// protocolObject reads the members of the protocol. It reports false if something is
// wrong. Then the version is not judged: nothing is known about other protocols.
func protocolObject(fields *Fields) (Protocol, bool) {
	name, hasName := fields.RequiredText("name")
	isForrst := name == ProtocolName
	if hasName && !isForrst {
		fields.Fail("name", `must be "forrst"`)
	}
	version, hasVersion := fields.RequiredText("version")
	if !hasVersion {
		return Protocol{}, false
	}
	isSemantic := isVersion(version)
	if !isSemantic {
		fields.Fail("version", "must be a semantic version such as 0.1.0")
	}
	return Protocol{Name: name, Version: version}, isForrst && isSemantic
}

// protocolText reads the form "forrst/0.1", which two pages of the protocol mention.
func protocolText(raw json.RawMessage) (Protocol, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return Protocol{}, false
	}
	name, version, _ := strings.Cut(string(strictjson.Unquote(raw)), "/")
	if version += ".0"; name != ProtocolName || !isVersion(version) {
		return Protocol{}, false
	}
	return Protocol{Name: name, Version: version}, true
}

func unspoken(version, pointer string) *Error {
	problem := Error{Code: InvalidProtocolVersion, Message: "Protocol version " + version + " is not supported"}
	problem = problem.At(pointer).With(struct {
		Requested string   `json:"requested"`
		Supported []string `json:"supported"`
	}{version, []string{ProtocolVersion}})
	return &problem
}
