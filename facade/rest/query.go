package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/problems"
)

// Where a field of a request is.
const (
	inBody   = "body"
	inQuery  = "query"
	inPath   = "path"
	inHeader = "header"
)

// mistakes are what is wrong with a request so far.
type mistakes = problems.Mistakes

// query reads the parameters of a request. Each is read by its name; [query.refuseOthers] refuses those
// that no reader has asked for, so that a misspelled one is not ignored.
type query struct {
	values map[string][]string
	read   []string
}

// readQuery returns the query of a request, which [query.check] must be told of.
func readQuery(r *http.Request) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return query{}, problems.New(problems.InvalidRequest, "The query is malformed: "+err.Error())
	}
	return query{values: values}, nil
}

// check refuses parameters that are no text, or are given more than once, but for the repeated one.
func (q *query) check(repeated string) error {
	var found mistakes
	for name, given := range q.values {
		switch {
		case len(given) > 1 && name != repeated:
			found.Add(FieldError{In: inQuery, Field: name, Detail: "must be given once only"})
		case !utf8.ValidString(name + strings.Join(given, "")):
			found.Add(FieldError{In: inQuery, Field: strings.ToValidUTF8(name, "?"), Detail: "must be valid UTF-8"})
		}
	}
	slices.SortFunc(found, func(a, b FieldError) int { return strings.Compare(a.Field, b.Field) })
	return found.Problem()
}

// all returns all values of a parameter.
func (q *query) all(name string) []string {
	q.read = append(q.read, name)
	return q.values[name]
}

// text returns a parameter, empty if it is not given.
func (q *query) text(name string) string {
	q.read = append(q.read, name)
	if given := q.values[name]; len(given) > 0 {
		return given[0]
	}
	return ""
}

// prefix returns the parameter of that name, in NFC. No key begins with a longer text than a key may be.
func (q *query) prefix(found *mistakes) string {
	value := q.text("prefix")
	if len(value) > v1alpha1.MaxKeyBytes {
		found.Add(FieldError{
			In: inQuery, Field: "prefix", Detail: "must be at most " + strconv.Itoa(v1alpha1.MaxKeyBytes) + " bytes of UTF-8",
			MaxLength: v1alpha1.MaxKeyBytes,
		})
		return ""
	}
	return v1alpha1.NormalizeKey(value)
}

// flag reports whether a parameter is true. [query.checkFlag] judges other values.
func (q *query) flag(name string) bool { return q.text(name) == "true" }

func (q *query) checkFlag(name string, found *mistakes) {
	if value := q.text(name); q.has(name) && value != "true" && value != "false" {
		found.Add(FieldError{In: inQuery, Field: name, Detail: "must be true or false", Value: value})
	}
}

// fencingToken returns the parameter of that name, zero if it is not given.
func (q *query) fencingToken(found *mistakes) int64 {
	value := q.text("fencing_token")
	if !q.has("fencing_token") {
		return 0
	}
	token, err := strconv.ParseInt(value, 10, 64)
	if err != nil || token < 1 {
		least := float64(1)
		found.Add(FieldError{In: inQuery, Field: "fencing_token", Detail: "must be a fencing token, a whole number from 1", Value: value, Minimum: &least})
		return 0
	}
	return token
}

func (q *query) has(name string) bool { return len(q.values[name]) > 0 }

// number returns a parameter between the bounds, or the default if it is not given.
func (q *query) number(name string, least, most, byDefault int, found *mistakes) int {
	value := q.text(name)
	if !q.has(name) {
		return byDefault
	}
	number, err := strconv.Atoi(value)
	if err != nil || number < least || number > most {
		low, high := float64(least), float64(most)
		found.Add(FieldError{
			In: inQuery, Field: name, Detail: "must be a whole number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most),
			Value: value, Minimum: &low, Maximum: &high,
		})
		return byDefault
	}
	return number
}

// refuseOthers refuses the parameters that were not read.
func (q *query) refuseOthers(found *mistakes) {
	var unknown []string
	for name := range q.values {
		if !slices.Contains(q.read, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		found.Add(FieldError{In: inQuery, Field: name, Detail: "is not a parameter of this operation"})
	}
}
