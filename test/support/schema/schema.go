// Package schema is JSON Schema, as far as the descriptions of the functions of the Forrst door use it.
package schema

// Schema is a JSON Schema. The zero Schema accepts everything.
type Schema struct {
	// Type is the name of a type, or a list of names.
	Type             any               `json:"type,omitempty"`
	Description      string            `json:"description,omitempty"`
	Format           string            `json:"format,omitempty"`
	Pattern          string            `json:"pattern,omitempty"`
	MinLength        int               `json:"minLength,omitempty"`
	MaxLength        int               `json:"maxLength,omitempty"`
	Enum             []any             `json:"enum,omitempty"`
	Minimum          *int              `json:"minimum,omitempty"`
	Maximum          *int              `json:"maximum,omitempty"`
	ExclusiveMinimum *int              `json:"exclusiveMinimum,omitempty"`
	Default          any               `json:"default,omitempty"`
	Properties       map[string]Schema `json:"properties,omitempty"`
	Required         []string          `json:"required,omitempty"`
	Items            *Schema           `json:"items,omitempty"`
	AnyOf            []Schema          `json:"anyOf,omitempty"`
}
