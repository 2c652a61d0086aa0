package forrst

import (
	"cmp"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// describedFunction is one version of a function (section 9.4). Of a function that runs
// elsewhere, version, arguments, result and side effects are not known.
type describedFunction struct {
	Name         string              `json:"name"`
	Version      string              `json:"version,omitempty"`
	Stability    string              `json:"stability,omitempty"`
	Summary      string              `json:"summary,omitempty"`
	Arguments    []Argument          `json:"arguments,omitzero"`
	Result       *describedResult    `json:"result,omitempty"`
	Errors       []DescribedError    `json:"errors"`
	SideEffects  []string            `json:"side_effects,omitzero"`
	Extensions   *describedExclusion `json:"extensions,omitempty"`
	Discoverable bool                `json:"discoverable"`
}

// camelFunction is the same in the spelling of the discovery page.
type camelFunction struct {
	describedFunction
	// SideEffects hides the other spelling. It is always nil.
	SideEffects      []string `json:"side_effects,omitempty"`
	SideEffectsCamel []string `json:"sideEffects,omitzero"`
}

func inCamelCase(function describedFunction) camelFunction {
	return camelFunction{describedFunction: function, SideEffectsCamel: function.SideEffects}
}

type describedResult struct {
	Schema      Schema `json:"schema"`
	Collection  bool   `json:"collection"`
	Description string `json:"description,omitempty"`
}

type describedExclusion struct {
	Excluded []string `json:"excluded"`
}

// describedVersions is what the page of the system functions asks for, with that of the
// recommended version beside it.
type describedVersions struct {
	Function    string             `json:"function"`
	Description string             `json:"description"`
	Versions    []describedVersion `json:"versions"`
	Recommended string             `json:"recommended_version,omitempty"`
	describedFunction
}

type describedVersion struct {
	Version     string              `json:"version"`
	Stability   string              `json:"stability"`
	Description string              `json:"description,omitempty"`
	Schema      *functionSchema     `json:"schema,omitempty"`
	Extensions  *describedExclusion `json:"extensions,omitempty"`
}

type functionSchema struct {
	Arguments   Schema            `json:"arguments"`
	Returns     Schema            `json:"returns"`
	Definitions map[string]Schema `json:"definitions"`
}

// descriptionDocument describes the whole service.
type descriptionDocument struct {
	Forrst     string                `json:"forrst"`
	Describe   string                `json:"describe"`
	Info       describedService      `json:"info"`
	Servers    []describedServer     `json:"servers"`
	Functions  []describedFunction   `json:"functions"`
	Components *describedDefinitions `json:"components,omitempty"`
}

// discoveryDocument is the same in the spelling of the discovery page.
type discoveryDocument struct {
	Forrst     string                `json:"forrst"`
	Discovery  string                `json:"discovery"`
	Info       describedService      `json:"info"`
	Servers    []describedServer     `json:"servers"`
	Functions  []camelFunction       `json:"functions"`
	Components *describedDefinitions `json:"components,omitempty"`
}

// documentVersion is the version of the form of both documents.
const documentVersion = "0.1.0"

type describedService struct {
	Title   string `json:"title"`
	Version string `json:"version"`
}

type describedServer struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

type describedDefinitions struct {
	Schemas map[string]Schema `json:"schemas"`
}

func describeFunction(function registered, withSchema bool) describedFunction {
	description := &function.Description
	described := describedFunction{
		Name:         function.Names[0],
		Version:      function.version.String(),
		Stability:    function.version.Stability(),
		Summary:      description.Summary,
		Arguments:    append([]Argument{}, description.Arguments...),
		Errors:       append(append([]DescribedError{}, standardErrors...), description.Errors...),
		SideEffects:  append([]string{}, description.SideEffects...),
		Extensions:   exclusionOf(function),
		Discoverable: !description.Hidden,
	}
	if withSchema {
		described.Result = &describedResult{Schema: description.Returns, Description: description.ResultSummary}
		return described
	}
	for i := range described.Arguments {
		described.Arguments[i].Schema = Schema{}
	}
	return described
}

// exclusionOf tells the extensions that a function refuses, by the names that callers
// use.
func exclusionOf(function registered) *describedExclusion {
	if len(function.Excluded) == 0 {
		return nil
	}
	exclusion := &describedExclusion{}
	for _, name := range function.Excluded {
		exclusion.Excluded = append(exclusion.Excluded, envelope.ExtensionURNs(name)...)
	}
	return exclusion
}

func describeVersions(asked describeArguments) describedVersions {
	best := recommended(asked.versions)
	described := describedVersions{
		Function:          asked.function,
		Description:       best.Description.Summary,
		Recommended:       asked.recommended,
		describedFunction: describeFunction(best, asked.includeSchema),
	}
	for _, each := range asked.versions {
		version := describedVersion{
			Version:     each.version.String(),
			Stability:   each.version.Stability(),
			Description: each.Description.Summary,
			Extensions:  exclusionOf(each),
		}
		if asked.includeSchema {
			version.Schema = &functionSchema{
				Arguments:   each.Description.argumentsSchema(),
				Returns:     each.Description.Returns,
				Definitions: map[string]Schema{},
			}
		}
		described.Versions = append(described.Versions, version)
	}
	return described
}

func (h *Handler) describeAll(withSchema bool) descriptionDocument {
	document := descriptionDocument{
		Forrst:     envelope.ProtocolVersion,
		Describe:   documentVersion,
		Info:       h.describeService(),
		Servers:    h.describeServers(),
		Components: describeDefinitions(withSchema),
	}
	for _, function := range h.functions.listed() {
		document.Functions = append(document.Functions, describeFunction(function, withSchema))
	}
	names, _ := h.routedFunctions()
	for _, name := range names {
		document.Functions = append(document.Functions, describeRouted(name))
	}
	return document
}

func (h *Handler) discoverAll(withSchema bool) discoveryDocument {
	snake := h.describeAll(withSchema)
	document := discoveryDocument{
		Forrst:     snake.Forrst,
		Discovery:  documentVersion,
		Info:       snake.Info,
		Servers:    snake.Servers,
		Components: snake.Components,
	}
	for i := range snake.Functions {
		document.Functions = append(document.Functions, inCamelCase(snake.Functions[i]))
	}
	return document
}

func (h *Handler) describeService() describedService {
	return describedService{Title: h.config.Service, Version: cmp.Or(h.config.Version, "0.0.0")}
}

func (h *Handler) describeServers() []describedServer {
	return []describedServer{{Name: h.config.Service, URL: Path}}
}

func describeDefinitions(withSchema bool) *describedDefinitions {
	if !withSchema {
		return nil
	}
	return &describedDefinitions{Schemas: optionSchemas()}
}
