package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// timed is a package, a test or a spec, and how long it took.
type timed struct {
	name string
	took time.Duration
}

// ginkgoReport is the part of a suite's JSON report that tells the times of its specs.
type ginkgoReport struct {
	SuitePath   string
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		RunTime                 time.Duration
	}
}

// printSlowest prints two tables: of packages, and of tests and specs.
func printSlowest(out io.Writer, folder string, most int) error {
	packages, tests, err := times(folder)
	if err != nil {
		return err
	}
	for _, table := range []struct {
		title string
		of    []timed
	}{{"package", packages}, {"test or spec", tests}} {
		slices.SortStableFunc(table.of, func(a, b timed) int { return cmp.Compare(b.took, a.took) })
		fmt.Fprintf(out, "| seconds | %s |\n| ---: | --- |\n", table.title)
		for _, each := range table.of[:min(most, len(table.of))] {
			fmt.Fprintf(out, "| %.1f | %s |\n", each.took.Seconds(), each.name)
		}
		fmt.Fprintln(out)
	}
	return nil
}

// times reads the logs of gotest and the reports of Ginkgo in a folder.
func times(folder string) (packages, tests []timed, err error) {
	logs, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, nil, err
	}
	reports, err := filepath.Glob(filepath.Join(folder, "ginkgo", "*.json"))
	if err != nil {
		return nil, nil, err
	}
	var failed error
	for _, log := range logs {
		failed = errors.Join(failed, open(log, func(file io.Reader) error {
			ran := map[string][]timed{} // by package
			return read(file, func(next event) {
				took := time.Duration(next.Elapsed * float64(time.Second))
				switch {
				case next.Action == "output" && strings.HasSuffix(next.Output, "\t(cached)\n"):
					delete(ran, next.Package) // The times are those of an earlier run.
				case next.Action != "pass" && next.Action != "fail":
				case next.Test == "":
					packages = append(packages, timed{next.Package, took})
					tests = append(tests, ran[next.Package]...)
				case !strings.Contains(next.Test, "/"):
					ran[next.Package] = append(ran[next.Package], timed{next.Package + ": " + next.Test, took})
				}
			}, func(string) {})
		}))
	}
	for _, report := range reports {
		failed = errors.Join(failed, open(report, func(file io.Reader) error {
			var suites []ginkgoReport
			_ = json.NewDecoder(file).Decode(&suites) // A suite that was ended has left no whole report.
			for _, suite := range suites {
				for _, spec := range suite.SpecReports {
					name := strings.Join(append(spec.ContainerHierarchyTexts, cmp.Or(spec.LeafNodeText, spec.LeafNodeType)), " ")
					tests = append(tests, timed{filepath.Base(suite.SuitePath) + ": " + name, spec.RunTime})
				}
			}
			return nil
		}))
	}
	return packages, tests, failed
}

func open(path string, read func(io.Reader) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return read(file)
}
