package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// event is one of "go test -json", as "go doc cmd/test2json" describes it.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64
}

// maxLine is more than any test prints in one line.
const maxLine = 64 << 20

// read calls each with the events of a log, and with lines that are no events.
func read(log io.Reader, each func(event), other func(line string)) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var next event
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			other(lines.Text())
			continue
		}
		each(next)
	}
	return lines.Err()
}

// said is the output of a package and its tests, in order, until the package has ended.
type said struct {
	lines []event
	// failed are the tests that failed, or have not ended, as where the time of the package was over.
	failed map[string]bool
}

// printEvents prints a line for each package, and for a package that failed all that its failed tests, those that have not
// ended, and no test, have said.
func printEvents(log io.Reader, out io.Writer) error {
	packages := map[string]*said{}
	return read(log, func(next event) {
		if next.Action == "build-output" {
			_, _ = io.WriteString(out, next.Output)
			return
		}
		of := packages[next.Package]
		if of == nil {
			of = &said{failed: map[string]bool{}}
			packages[next.Package] = of
		}
		switch {
		case next.Action == "output":
			of.lines = append(of.lines, next)
		case next.Test != "" && next.Action == "run":
			of.failed[next.Test] = true
		case next.Test != "" && (next.Action == "pass" || next.Action == "skip"):
			delete(of.failed, next.Test)
		case next.Test == "" && (next.Action == "pass" || next.Action == "fail" || next.Action == "skip"):
			of.print(out, next.Action == "fail")
			delete(packages, next.Package)
		}
	}, func(line string) { fmt.Fprintln(out, line) })
}

func (s *said) print(out io.Writer, isFailed bool) {
	for _, line := range s.lines {
		isResult := line.Test == "" && (strings.HasPrefix(line.Output, "ok  \t") || strings.HasPrefix(line.Output, "?   \t"))
		if isResult || isFailed && (line.Test == "" || s.failed[line.Test]) {
			_, _ = io.WriteString(out, line.Output)
		}
	}
}
