package routes

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// MaxFileBytes is the largest file that is read; a ConfigMap is not larger.
const MaxFileBytes = 1 << 20

// maxProblems is how many faults of a file are told at once.
const maxProblems = 20

// Problem is a fault in a file.
type Problem struct {
	Line   int    // counts from one; zero if the fault has no line
	Reason string // what is wrong
}

// ParseErrors are the faults in a file. As an error value they are not empty.
type ParseErrors []Problem

// Error implements error.
func (p ParseErrors) Error() string {
	texts := make([]string, len(p))
	for i, problem := range p {
		texts[i] = problem.Reason
		if problem.Line > 0 {
			texts[i] = fmt.Sprintf("line %d: %s", problem.Line, problem.Reason)
		}
	}
	return strings.Join(texts, "; ")
}

// Parse reads a table. What it does not know is a fault: a typing error must not leave a function without its route. The error
// is a [ParseErrors].
func Parse(data []byte) (*Table, error) {
	if len(data) > MaxFileBytes {
		return nil, ParseErrors{{Reason: fmt.Sprintf("must have at most %d bytes", MaxFileBytes)}}
	}
	if err := encodingProblem(data); err != nil {
		return nil, err
	}
	document, err := decode(data)
	if err != nil {
		return nil, err
	}
	reader := reader{table: &Table{exact: map[string]*Route{}, prefixes: map[string]*Route{}}, lines: map[string]int{}}
	reader.readFile(document)
	if len(reader.problems) > 0 {
		slices.SortStableFunc(reader.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
		return nil, reader.problems
	}
	return reader.table, nil
}

// decode returns the root of the one document in data.
func decode(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, more yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, ParseErrors{{Line: 1, Reason: "the file is empty"}}
	} else if err != nil {
		return nil, syntaxProblem(err, data)
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, ParseErrors{{Line: more.Line, Reason: "there must be one document only"}}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxProblem(err, data)
	}
	return document.Content[0], nil
}

// syntax is what errors of the decoder look like.
var syntax = regexp.MustCompile(`^yaml: (?:line (\d+): )?((?s).*)$`)

// grammar matches the errors whose lines the decoder counts from zero.
var grammar = regexp.MustCompile(`^did not find expected (<|node content|'-' indicator|key|',' or)`)

func syntaxProblem(err error, data []byte) ParseErrors {
	parts := syntax.FindStringSubmatch(err.Error())
	if parts == nil {
		return ParseErrors{{Reason: err.Error()}}
	}
	line, err := strconv.Atoi(parts[1])
	if err != nil || grammar.MatchString(parts[2]) {
		line++ // The first line is not told, being zero.
	}
	// The end of the file counts as a line of its own.
	lines := bytes.Count(bytes.TrimSuffix(data, []byte{'\n'}), []byte{'\n'}) + 1
	return ParseErrors{{Line: min(line, lines), Reason: parts[2]}}
}

// encodingProblem finds what is no text, of which the decoder does not tell the line.
func encodingProblem(data []byte) error {
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if !utf8.Valid(line) || bytes.ContainsFunc(bytes.TrimRight(line, "\r\n"), isControl) {
			return ParseErrors{{Line: number, Reason: "must be text in UTF-8 without control characters"}}
		}
	}
	return nil
}

func isControl(character rune) bool { return unicode.IsControl(character) && character != '\t' }

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
	r.table.routes = append(r.table.routes, Route{Timeout: r.readTimeout(members["timeout"])})
	route := &r.table.routes[len(r.table.routes)-1]
	if location := members["url"]; location == nil {
		r.fail(node, "url is required")
	} else {
		route.URL, route.Host = r.readURL(location)
	}
	if members["functions"] == nil {
		r.fail(node, "functions is required")
	}
	r.readDemands(node, members, route)
	route.Functions = r.readList(members["functions"], "functions", "a function", "function %q %s", func(node *yaml.Node) string {
		pattern := node.Value
		switch {
		case !utf8.ValidString(pattern) || strings.ContainsFunc(pattern, isUnfit):
			return "must not contain white space or control characters"
		case hasInnerAsterisk(pattern):
			return asteriskFault
		case IsReserved(pattern):
			return "must not begin with " + strings.Join(reserved, " or ") + ": such functions are not routed"
		case !r.table.add(pattern, route):
			return fmt.Sprintf("has a route already, in line %d", r.lines[pattern])
		}
		r.lines[pattern] = node.Line
		return ""
	})
}

func isUnfit(character rune) bool { return unicode.IsSpace(character) || unicode.IsControl(character) }

const asteriskFault = "must have no asterisk but at its end"

func hasInnerAsterisk(pattern string) bool {
	return strings.Contains(strings.TrimSuffix(pattern, "*"), "*")
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
	route.FullKeys = r.readList(members["fullKeys"], "fullKeys", "each of fullKeys", "%q in fullKeys %s", func(key *yaml.Node) string {
		switch {
		case !strings.HasPrefix(key.Value, "lock:"):
			return "must begin with lock:, as in lock:billing:report or lock:billing:*"
		case hasInnerAsterisk(key.Value):
			return asteriskFault
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
	route.Namespaces = r.readList(members["namespaces"], "namespaces", "each of namespaces", "%q in namespaces %s", func(name *yaml.Node) string {
		if problems := validation.IsDNS1123Label(name.Value); len(problems) > 0 {
			return "is not the name of a namespace: " + problems[0]
		}
		return ""
	})
}

// readList reads a list of texts that is not empty, if there is one. Format describes an element and what fault says of it.
func (r *reader) readList(list *yaml.Node, name, element, format string, fault func(*yaml.Node) string) []string {
	if list == nil {
		return nil
	}
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		r.fail(list, "%s must be a list that is not empty", name)
		return nil
	}
	var texts []string
	for _, node := range list.Content {
		text, ok := r.text(node, element)
		if !ok {
			continue
		}
		if reason := fault(node); reason != "" {
			r.fail(node, format, text, reason)
			continue
		}
		texts = append(texts, text)
	}
	return texts
}

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
