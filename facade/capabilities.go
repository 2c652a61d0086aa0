package facade

import (
	"context"

	"forrst.dev/lock-operator/facade/forrst"
)

// capabilities tells what the server offers, in the spellings of both pages that
// describe it (section 9.3).
type capabilities struct {
	Service               string             `json:"service"`
	Version               string             `json:"version,omitempty"`
	ProtocolVersions      []string           `json:"protocol_versions"`
	ProtocolVersionsCamel []string           `json:"protocolVersions"`
	Functions             []string           `json:"functions"`
	Extensions            []offeredExtension `json:"extensions"`
	Limits                capabilityLimits   `json:"limits"`
}

type offeredExtension struct {
	URN     string `json:"urn"`
	Version string `json:"version"`
}

type capabilityLimits struct {
	MaxRequestBytes int `json:"max_request_bytes"`
	MaxRequestSize  int `json:"maxRequestSize"`
	MaxDepth        int `json:"max_depth"`
}

func (h *Handler) capabilities() Function {
	return Function{
		Names:   systemNames("discovery", "capabilities"),
		Version: systemVersion,
		Prepare: func(*forrst.Request) (Invocation, forrst.Errors) {
			return func(context.Context) (any, error) { return h.describeCapabilities(), nil }, nil
		},
	}
}

func (h *Handler) describeCapabilities() capabilities {
	offer := capabilities{
		Service:          h.config.Service,
		Version:          h.config.Version,
		ProtocolVersions: []string{forrst.ProtocolVersion},
		Functions:        h.functions.names,
		Limits: capabilityLimits{
			MaxRequestBytes: MaxRequestBytes,
			MaxRequestSize:  MaxRequestBytes,
			MaxDepth:        forrst.MaxDepth,
		},
	}
	offer.ProtocolVersionsCamel = offer.ProtocolVersions
	for _, urn := range supportedURNs() {
		offer.Extensions = append(offer.Extensions, offeredExtension{URN: urn, Version: systemVersion})
	}
	return offer
}
