package forrst

import "forrst.dev/lock-operator/facade/forrst/envelope"

// Description is what describe tells about a function (section 9.4). The zero
// Description tells nothing but the name and the version.
type Description struct {
	// Summary says in one line what the function does.
	Summary string
	// Arguments are those that the function reads.
	Arguments []Argument
	// Returns describes the result.
	Returns Schema
	// ResultSummary says in one line what the result is.
	ResultSummary string
	// Errors are those that the function adds to the standard ones.
	Errors []DescribedError
	// SideEffects are some of "create", "update" and "delete". None means that the
	// function only reads.
	SideEffects []string
	// Hidden leaves the function out of lists. It can be called all the same.
	Hidden bool
}

// Argument is one argument of a function.
type Argument struct {
	Name        string `json:"name"`
	Required    bool   `json:"required"`
	Description string `json:"description,omitempty"`
	Schema      Schema `json:"schema,omitzero"`
}

// DescribedError is an error that a function may return.
type DescribedError struct {
	Code    envelope.Code `json:"code"`
	Message string        `json:"message"`
}

// standardErrors are those that every function may return.
var standardErrors = []DescribedError{
	{envelope.ParseError, "The body is not JSON"},
	{envelope.InvalidRequest, "The envelope breaks the protocol"},
	{envelope.FunctionNotFound, "There is no such function"},
	{envelope.InvalidArguments, "Arguments or options are wrong"},
	{envelope.SchemaValidationFailed, "Arguments fail the schema"},
	{envelope.InternalError, "The service failed unexpectedly"},
	{envelope.Unavailable, "The service cannot do it for the moment"},
	{envelope.Unauthorized, "The caller is not authenticated"},
	{envelope.Forbidden, "The caller is not allowed"},
	{envelope.RateLimited, "The caller has made too many calls"},
}

// required and optional describe an argument by its schema.
func required(name string, schema Schema) Argument { return argument(name, true, schema) }

func optional(name string, schema Schema) Argument { return argument(name, false, schema) }

func argument(name string, isRequired bool, schema Schema) Argument {
	described := Argument{Name: name, Required: isRequired, Description: schema.Description}
	schema.Description = ""
	described.Schema = schema
	return described
}

// argumentsSchema describes all arguments together.
func (d *Description) argumentsSchema() Schema {
	schema := Schema{Type: "object", Properties: map[string]Schema{}}
	for _, each := range d.Arguments {
		schema.Properties[each.Name] = each.Schema.describedAs(each.Description)
		if each.Required {
			schema.Required = append(schema.Required, each.Name)
		}
	}
	return schema
}
