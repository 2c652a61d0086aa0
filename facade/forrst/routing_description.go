package forrst

import (
	"slices"
	"strings"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// routedSummary is all that is known of functions that run elsewhere.
const routedSummary = "Runs in another service, which may describe it"

// routedFunctions returns the names of the functions that run elsewhere, and the prefixes,
// with an asterisk each, where only those are known. Both are in the order of the routes.
func (h *Handler) routedFunctions() (names, prefixes []string) {
	if h.config.Routing == nil {
		return nil, nil
	}
	for _, route := range h.config.Routing.Routes.Routes() {
		for _, pattern := range route.Functions {
			switch {
			case strings.HasSuffix(pattern, "*"):
				prefixes = append(prefixes, pattern)
			case h.functions.versions[pattern] == nil:
				names = append(names, pattern)
			}
		}
	}
	return names, prefixes
}

func describeRouted(name string) describedFunction {
	return describedFunction{
		Name:         name,
		Summary:      routedSummary,
		Errors:       append(slices.Clone(standardErrors), DescribedError{envelope.DependencyError, "The service of the function has failed"}),
		Discoverable: true,
	}
}

func describeRoutedVersions(name string) describedVersions {
	return describedVersions{
		Function:          name,
		Description:       routedSummary,
		Versions:          []describedVersion{},
		describedFunction: describeRouted(name),
	}
}
