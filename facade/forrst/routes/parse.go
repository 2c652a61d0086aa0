package routes

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxFileBytes is the largest file that is read; a ConfigMap is not larger.
const MaxFileBytes = 1 << 20

// maxProblems is how many faults of a file are told at once.
const maxProblems = 20

// Problem is a fault in a file.
type Problem struct {
	// Line counts from one. It is zero if the fault has no line.
	Line int
	// Reason says what is wrong.
	Reason string
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

// Parse reads a table. What it does not know is a fault: a typing error must not leave a
// function without its route. The error is a [ParseErrors].
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
	reader := reader{table: &Table{}, lines: map[string]int{}}
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
