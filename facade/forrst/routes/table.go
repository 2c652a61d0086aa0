package routes

import (
	"cmp"
	"slices"
	"strings"
)

// reserved begin the names of functions that the façade or another part of the protocol
// defines. They are never routed.
var reserved = []string{"forrst.", "urn:cline:", "urn:k8s:"}

// IsReserved reports whether a function can never be routed, whatever the patterns are.
func IsReserved(function string) bool {
	return slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(function, prefix) })
}

// Table finds routes by the names of functions. The zero Table has none. A Table is made
// by [Parse] and safe for concurrent use.
type Table struct {
	exact, prefixes map[string]*Route
	// lengths are those of prefixes, the longest first.
	lengths []int
	// routes are all routes in the order of the file.
	routes []Route
}

// Find returns the route of a function. Of all patterns that match, the longest counts.
func (t *Table) Find(function string) (Route, bool) {
	if IsReserved(function) {
		return Route{}, false
	}
	if route, ok := t.exact[function]; ok {
		return *route, true
	}
	for _, length := range t.lengths {
		if length > len(function) || length == len(function) && endsInSeparator(function) {
			continue
		}
		if route, ok := t.prefixes[function[:length]]; ok {
			return *route, true
		}
	}
	return Route{}, false
}

// endsInSeparator reports whether a name has an empty last part. A prefix that ends in a
// separator stands for the functions below it, of which this is none.
func endsInSeparator(name string) bool {
	return strings.HasSuffix(name, ".") || strings.HasSuffix(name, ":")
}

// Routes returns all routes, in the order of the file.
func (t *Table) Routes() []Route { return slices.Clone(t.routes) }

// add adds a pattern. It reports false if the table has it already.
func (t *Table) add(pattern string, route *Route) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	patterns := &t.exact
	if isPrefix {
		patterns = &t.prefixes
	}
	if *patterns == nil {
		*patterns = map[string]*Route{}
	}
	if _, ok := (*patterns)[prefix]; ok {
		return false
	}
	(*patterns)[prefix] = route
	if isPrefix && !slices.Contains(t.lengths, len(prefix)) {
		t.lengths = append(t.lengths, len(prefix))
		slices.SortFunc(t.lengths, func(a, b int) int { return cmp.Compare(b, a) })
	}
	return true
}
