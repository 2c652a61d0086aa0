package describe

import (
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// Capabilities tells what the service offers, in the spellings of both pages that describe it (docs/forrst.md, section 9.3).
type Capabilities struct {
	Service               string   `json:"service"`
	Version               string   `json:"version,omitempty"`
	ProtocolVersions      []string `json:"protocol_versions"`
	ProtocolVersionsCamel []string `json:"protocolVersions"`
	Functions             []string `json:"functions"`
	// FunctionPrefixes end in an asterisk. Functions that begin with one run in other services.
	FunctionPrefixes []string `json:"function_prefixes,omitempty"`
	// Extensions has an entry for each spelling.
	Extensions []OfferedExtension `json:"extensions"`
	// Limits bound the requests of callers.
	Limits struct {
		MaxRequestBytes int               `json:"max_request_bytes"`
		MaxRequestSize  int               `json:"maxRequestSize"`
		MaxDepth        int               `json:"max_depth"`
		MaxBlock        envelope.Duration `json:"max_block"`
	} `json:"limits"`
}

// OfferedExtension is one spelling of an extension.
type OfferedExtension struct {
	URN     string `json:"urn"`
	Version string `json:"version"`
}

// Capabilities returns the capabilities with the names of all functions, the prefixes of functions of other services, and
// the URNs of the extensions that requests may have.
func (s Service) Capabilities(functions, prefixes, urns []string) Capabilities {
	offer := Capabilities{
		Service: wire.ServiceName, Version: s.Version, Functions: functions, FunctionPrefixes: prefixes,
		ProtocolVersions: []string{envelope.ProtocolVersion}, ProtocolVersionsCamel: []string{envelope.ProtocolVersion},
	}
	offer.Limits.MaxRequestBytes, offer.Limits.MaxRequestSize = s.MaxRequestBytes, s.MaxRequestBytes
	offer.Limits.MaxDepth, offer.Limits.MaxBlock = envelope.MaxDepth, envelope.NewDuration(s.MaxBlock)
	for _, urn := range append(urns,
		// Requests do not have these: the first two offer functions, the last is in responses.
		"urn:cline:forrst:ext:diagnostics", "urn:forrst:ext:diagnostics",
		"urn:cline:forrst:ext:discovery", "urn:forrst:ext:discovery", wire.FencingURN) {
		offer.Extensions = append(offer.Extensions, OfferedExtension{URN: urn, Version: wire.FunctionVersion})
	}
	return offer
}
