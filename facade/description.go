package facade

import "forrst.dev/lock-operator/facade/forrst"

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
	Code    forrst.Code `json:"code"`
	Message string      `json:"message"`
}

// standardErrors are those that every function may return.
var standardErrors = []DescribedError{
	{forrst.ParseError, "The body is not JSON"},
	{forrst.InvalidRequest, "The envelope breaks the protocol"},
	{forrst.FunctionNotFound, "There is no such function"},
	{forrst.InvalidArguments, "Arguments or options are wrong"},
	{forrst.SchemaValidationFailed, "Arguments fail the schema"},
	{forrst.InternalError, "The service failed unexpectedly"},
	{forrst.Unavailable, "The service cannot do it for the moment"},
	{forrst.Unauthorized, "The caller is not authenticated"},
	{forrst.Forbidden, "The caller is not allowed"},
	{forrst.RateLimited, "The caller has made too many calls"},
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
