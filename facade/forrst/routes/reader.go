package routes

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// reader turns the nodes of a file into a table and collects what is wrong with them.
type reader struct {
	table    *Table
	problems ParseErrors
	// lines are those of the patterns.
	lines map[string]int
}

func (r *reader) fail(node *yaml.Node, format string, arguments ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, Problem{node.Line, fmt.Sprintf(format, arguments...)})
	}
}

func (r *reader) readFile(root *yaml.Node) {
	list := r.members(root, "the file", "routes")["routes"]
	switch {
	case root.Kind != yaml.MappingNode: // Was told.
	case list == nil:
		r.fail(root, "routes is required")
	case list.Kind != yaml.SequenceNode:
		r.fail(list, "routes must be a list")
	default:
		r.table.routes = make([]Route, 0, len(list.Content))
		for _, node := range list.Content {
			r.readRoute(node)
		}
	}
}

func (r *reader) readRoute(node *yaml.Node) {
	members := r.members(node, "a route", "functions", "url", "timeout", "lock", "fullKeys", "namespaces")
	if members == nil {
		return
	}
	route := Route{Timeout: r.readTimeout(members["timeout"])}
	if location := members["url"]; location == nil {
		r.fail(node, "url is required")
	} else {
		route.URL, route.Host = r.readURL(location)
	}
	r.readDemands(node, members, &route)
	r.table.routes = append(r.table.routes, route)
	functions := members["functions"]
	switch {
	case functions == nil:
		r.fail(node, "functions is required")
	case functions.Kind != yaml.SequenceNode || len(functions.Content) == 0:
		r.fail(functions, "functions must be a list that is not empty")
	default:
		for _, pattern := range functions.Content {
			r.readPattern(pattern, &r.table.routes[len(r.table.routes)-1])
		}
	}
}

// required is the only value of the member lock.
const required = "required"

// readDemands reads what a call must have to be forwarded.
func (r *reader) readDemands(node *yaml.Node, members map[string]*yaml.Node, route *Route) {
	if lock := members["lock"]; lock != nil {
		if route.NeedsLock = lock.Kind == yaml.ScalarNode && lock.Value == required; !route.NeedsLock {
			r.fail(lock, "lock must be %s; leave it out if calls need none", required)
		}
	}
	route.FullKeys = r.readList(members["fullKeys"], "fullKeys", func(key string) string {
		prefix := strings.TrimSuffix(key, "*")
		switch {
		case !strings.HasPrefix(key, "lock:"):
			return "must begin with lock:, as in lock:billing:report or lock:billing:*"
		case strings.Contains(prefix, "*"):
			return "must have no asterisk but at its end"
		}
		return ""
	})
	for index, key := range route.FullKeys {
		route.FullKeys[index] = v1alpha1.NormalizeKey(key)
	}
	if len(route.FullKeys) > 0 && members["lock"] == nil {
		// A call without a lock would pass, whatever the keys are.
		r.fail(node, "fullKeys needs lock: %s", required)
	}
	route.Namespaces = r.readList(members["namespaces"], "namespaces", func(name string) string {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return "is not the name of a namespace: " + problems[0]
		}
		return ""
	})
}

// readList reads a list of texts that is not empty, if there is one.
func (r *reader) readList(node *yaml.Node, what string, fault func(text string) string) []string {
	if node == nil {
		return nil
	}
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		r.fail(node, "%s must be a list that is not empty", what)
		return nil
	}
	var texts []string
	for _, each := range node.Content {
		text, ok := r.text(each, "each of "+what)
		if !ok {
			continue
		}
		if reason := fault(text); reason != "" {
			r.fail(each, "%q in %s %s", text, what, reason)
			continue
		}
		texts = append(texts, text)
	}
	return texts
}

func (r *reader) readPattern(node *yaml.Node, route *Route) {
	pattern, ok := r.text(node, "a function")
	if !ok {
		return
	}
	if reason := patternFault(pattern); reason != "" {
		r.fail(node, "function %q %s", pattern, reason)
		return
	}
	if !r.table.add(pattern, route) {
		r.fail(node, "function %q has a route already, in line %d", pattern, r.lines[pattern])
		return
	}
	route.Functions = append(route.Functions, pattern)
	r.lines[pattern] = node.Line
}

// patternFault says what is wrong with a pattern, or "".
func patternFault(pattern string) string {
	switch {
	case !utf8.ValidString(pattern) || strings.ContainsFunc(pattern, isUnfit):
		return "must not contain white space or control characters"
	case strings.Contains(strings.TrimSuffix(pattern, "*"), "*"):
		return "must have no asterisk but at its end"
	case IsReserved(pattern):
		return "must not begin with " + strings.Join(reserved, " or ") + ": such functions are not routed"
	}
	return ""
}

func isUnfit(character rune) bool { return unicode.IsSpace(character) || unicode.IsControl(character) }

func (r *reader) readURL(node *yaml.Node) (location, host string) {
	location, ok := r.text(node, "url")
	if !ok {
		return "", ""
	}
	parsed, err := url.Parse(location)
	switch {
	case err != nil:
		// Its text would repeat credentials.
		r.fail(node, "url must be a URL such as http://payments.payments.svc:8080/forrst")
	case parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.Opaque != "":
		r.fail(node, "url must begin with http:// or https:// and a host")
	case parsed.User != nil:
		r.fail(node, "url must not contain credentials")
	case parsed.Fragment != "":
		r.fail(node, "url must not have a fragment")
	default:
		return location, parsed.Host
	}
	return "", ""
}

func (r *reader) readTimeout(node *yaml.Node) time.Duration {
	if node == nil {
		return DefaultTimeout
	}
	// A number has no unit, so it is none either.
	timeout, err := time.ParseDuration(node.Value)
	if err != nil || timeout < MinTimeout || timeout > MaxTimeout {
		r.fail(node, "timeout must be a duration such as 30s, from %s to %s", MinTimeout, MaxTimeout)
	}
	return timeout
}

// text reads a string that is not empty.
func (r *reader) text(node *yaml.Node, what string) (string, bool) {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!str" || node.Value == "" {
		r.fail(node, "%s must be a text that is not empty", what)
		return "", false
	}
	return node.Value, true
}

// members reads an object by its known members. Those that are null are absent.
func (r *reader) members(node *yaml.Node, what string, known ...string) map[string]*yaml.Node {
	if node.Kind != yaml.MappingNode {
		r.fail(node, "%s must be an object with %s", what, strings.Join(known, ", "))
		return nil
	}
	members := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		_, isTwice := members[name.Value]
		switch {
		case name.Kind != yaml.ScalarNode || !slices.Contains(known, name.Value):
			r.fail(name, "%q is unknown here; known are %s", name.Value, strings.Join(known, ", "))
		case isTwice:
			r.fail(name, "%s must not be given twice", name.Value)
		default:
			members[name.Value] = value
		}
	}
	maps.DeleteFunc(members, func(_ string, value *yaml.Node) bool {
		return value.Kind == yaml.ScalarNode && value.Tag == "!!null"
	})
	return members
}
