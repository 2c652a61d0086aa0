package forrst

import (
	"encoding/json"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// Schema is a JSON Schema as far as it is needed here. The zero Schema accepts
// everything.
type Schema struct {
	// Type is a name of a type, or a list of them.
	Type             any               `json:"type,omitempty"`
	Description      string            `json:"description,omitempty"`
	Format           string            `json:"format,omitempty"`
	Pattern          string            `json:"pattern,omitempty"`
	MinLength        int               `json:"minLength,omitempty"`
	MaxLength        int               `json:"maxLength,omitempty"`
	Enum             []any             `json:"enum,omitempty"`
	Minimum          *int              `json:"minimum,omitempty"`
	ExclusiveMinimum *int              `json:"exclusiveMinimum,omitempty"`
	Default          any               `json:"default,omitempty"`
	Properties       map[string]Schema `json:"properties,omitempty"`
	Required         []string          `json:"required,omitempty"`
	Items            *Schema           `json:"items,omitempty"`
	AnyOf            []Schema          `json:"anyOf,omitempty"`
}

// describedAs returns the schema with a description.
func (s Schema) describedAs(description string) Schema {
	s.Description = description
	return s
}

func text(maxLength int) Schema { return Schema{Type: "string", MinLength: 1, MaxLength: maxLength} }

func flag(fallback bool) Schema { return Schema{Type: "boolean", Default: fallback} }

func timestampSchema() Schema { return Schema{Type: "string", Format: "date-time"} }

func oneOf(values ...any) Schema { return Schema{Type: "string", Enum: values} }

// object is an object with properties, of which some are required. Others than these
// are ignored.
func object(properties map[string]Schema, required ...string) Schema {
	return Schema{Type: "object", Properties: properties, Required: required}
}

// durationSchema describes durations that are more than zero, or not negative.
func durationSchema(allowZero bool) Schema {
	number := Schema{Type: "number", ExclusiveMinimum: new(0)}
	if allowZero {
		number = Schema{Type: "number", Minimum: new(0)}
	}
	unit := oneOf(envelope.Millisecond, envelope.Second, envelope.Minute, envelope.Hour, envelope.Day)
	unit.Default = envelope.Second
	return object(map[string]Schema{
		"value": {AnyOf: []Schema{number, {Type: "string", Pattern: `^(0|[1-9]\d*)(\.\d+)?$`}}},
		"unit":  unit,
	}, "value")
}

// Lengths in bytes, as the checks have them; JSON Schema counts characters, of which
// there are never more.
const (
	maxKeyLength   = 512
	maxOwnerLength = 512
)

func keySchema() Schema { return text(maxKeyLength).describedAs("What is locked") }

func fullKeySchema() Schema {
	return Schema{Type: "string", MinLength: 1}.describedAs(`The full key, such as "lock:billing:report"`)
}

func ownerSchema() Schema {
	return text(maxOwnerLength).describedAs("The token that releases the lock")
}

func scopeSchema(fallback string) Schema {
	scope := oneOf(wire.FunctionScope, wire.GlobalScope)
	scope.Default = fallback
	return scope
}

// lockOptionsSchema describes the options of the atomic lock extension.
func lockOptionsSchema() Schema {
	return object(map[string]Schema{
		"key":          keySchema(),
		"ttl":          durationSchema(false).describedAs("How long the lock lives if nobody releases it"),
		"scope":        scopeSchema(wire.FunctionScope),
		"block":        durationSchema(true).describedAs("How long to wait for the lock"),
		"owner":        ownerSchema(),
		"auto_release": flag(true).describedAs("Whether the lock ends with the call"),
	}, "key", "ttl")
}

// optionSchemas describe the options of all extensions, by a name for each.
func optionSchemas() map[string]Schema {
	at := timestampSchema()
	return map[string]Schema{
		"AtomicLockOptions":   lockOptionsSchema(),
		"CancellationOptions": object(map[string]Schema{"token": tokenSchema()}, "token"),
		"DeadlineOptions": {AnyOf: []Schema{
			durationSchema(false),
			object(map[string]Schema{"value": at, "unit": oneOf("iso8601")}, "value", "unit"),
			object(map[string]Schema{"deadline": at}, "deadline"),
			object(map[string]Schema{"timeout": durationSchema(false)}, "timeout"),
		}},
		"TracingOptions": object(map[string]Schema{
			"trace_id": {Type: "string"}, "span_id": {Type: "string"}, "parent_span_id": {Type: "string"},
			"baggage": {Type: "object"},
		}),
		"Duration": durationSchema(true),
	}
}

func tokenSchema() Schema {
	return Schema{Type: "string", Pattern: cancellationToken.String()}
}

// Encoded is the schema as JSON.
func (s Schema) Encoded() json.RawMessage { return envelope.MustEncode(s) }
