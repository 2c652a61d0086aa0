package forrst

import (
	"context"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// capabilities tells what the server offers, in the spellings of both pages that
// describe it (section 9.3).
type capabilities struct {
	Service               string   `json:"service"`
	Version               string   `json:"version,omitempty"`
	ProtocolVersions      []string `json:"protocol_versions"`
	ProtocolVersionsCamel []string `json:"protocolVersions"`
	Functions             []string `json:"functions"`
	// FunctionPrefixes end in an asterisk. What begins with one runs elsewhere.
	FunctionPrefixes []string           `json:"function_prefixes,omitempty"`
	Extensions       []offeredExtension `json:"extensions"`
	Limits           capabilityLimits   `json:"limits"`
}

type offeredExtension struct {
	URN     string `json:"urn"`
	Version string `json:"version"`
}

type capabilityLimits struct {
	MaxRequestBytes int `json:"max_request_bytes"`
	MaxRequestSize  int `json:"maxRequestSize"`
	MaxDepth        int `json:"max_depth"`
	// MaxBlock is the longest wait for a lock that one call may ask for.
	MaxBlock envelope.Duration `json:"max_block"`
}

func (h *Handler) capabilities() Function {
	return Function{
		Names:       systemNames(discovery, "capabilities"),
		Version:     systemVersion,
		Description: describeCapabilities(),
		Prepare: func(*envelope.Request) (Invocation, envelope.Errors) {
			return func(context.Context) (any, error) { return h.currentCapabilities(), nil }, nil
		},
	}
}

func (h *Handler) currentCapabilities() capabilities {
	offer := capabilities{
		Service:          h.config.Service,
		Version:          h.config.Version,
		ProtocolVersions: []string{envelope.ProtocolVersion},
		Functions:        h.functions.discoverable(),
		Limits: capabilityLimits{
			MaxRequestBytes: MaxRequestBytes,
			MaxRequestSize:  MaxRequestBytes,
			MaxDepth:        envelope.MaxDepth,
			MaxBlock:        envelope.NewDuration(h.config.MaxBlock),
		},
	}
	names, prefixes := h.routedFunctions()
	offer.Functions, offer.FunctionPrefixes = append(offer.Functions, names...), prefixes
	offer.ProtocolVersionsCamel = offer.ProtocolVersions
	offered := supportedURNs()
	for _, name := range []string{"diagnostics", discovery} {
		// Nobody has to ask for them: they offer functions.
		offered = append(offered, "urn:cline:forrst:ext:"+name, "urn:forrst:ext:"+name)
	}
	for _, urn := range offered {
		offer.Extensions = append(offer.Extensions, offeredExtension{URN: urn, Version: systemVersion})
	}
	// Not among the supported ones, since nobody has to ask for it.
	offer.Extensions = append(offer.Extensions, offeredExtension{URN: wire.FencingURN, Version: systemVersion})
	return offer
}
