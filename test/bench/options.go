package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/scenario"
)

// The suites.
const (
	suiteSpeed = "speed"
	suiteScale = "scale"
)

// options are the options of the command line. All paths are absolute.
type options struct {
	lab.Options

	// suite is suiteSpeed or suiteScale.
	suite string
	// only selects scenarios by name.
	only *regexp.Regexp
	// isTrial says that the run is too short to judge by.
	isTrial bool
	// page is the page of the documentation to write the report into, or empty.
	page string
	// revision is the commit that is measured, for the page.
	revision string
	// scenarioTimeout bounds a scenario.
	scenarioTimeout time.Duration
}

func parseOptions(arguments []string) (options, error) {
	var settings options
	var only string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&settings.suite, "suite", suiteSpeed, "which `suite` to run: speed or scale")
	flags.StringVar(&only, "only", "", "run only scenarios that match the `expression`")
	flags.BoolVar(&settings.isTrial, "quick", false, "a tenth of the rounds and of the live locks: a trial, too short to judge by")
	flags.Float64Var(&settings.Effort, "effort", 1, "the `factor` for the number of rounds")
	flags.IntVar(&settings.LiveLocks, "live-locks", 100_000, "how many locks the suite scale holds")
	flags.StringVar(&settings.Devcluster, "devcluster", "bin/devcluster", "`path` of the development cluster's program")
	flags.StringVar(&settings.Operator, "operator", "bin/lock-operator", "`path` of the operator")
	flags.StringVar(&settings.Binaries, "binaries", "bin/k8s", "`folder` of the control plane's programs")
	flags.StringVar(&settings.Config, "config", "config", "`folder` of the manifests")
	flags.StringVar(&settings.Against, "against", "", "`folder` of another commit, built, to compare with on a cluster of its own")
	flags.StringVar(&settings.page, "report", "", "`path` of a page to write the tables into, with plots beside it")
	flags.StringVar(&settings.revision, "revision", "unknown", "the `commit` that is measured, for the page")
	if err := flags.Parse(arguments); err != nil {
		return options{}, err
	}
	if settings.suite != suiteSpeed && settings.suite != suiteScale {
		return options{}, fmt.Errorf("-suite: %q is neither speed nor scale", settings.suite)
	}
	if settings.isTrial {
		settings.Effort /= 10
		settings.LiveLocks /= 10
	}
	if settings.Effort <= 0 || settings.LiveLocks < 1 {
		return options{}, errors.New("-effort and -live-locks must be positive")
	}
	settings.scenarioTimeout = 15 * time.Minute
	if settings.suite == suiteScale {
		settings.scenarioTimeout = 2 * time.Hour
	}
	var err error
	if settings.only, err = regexp.Compile(only); err != nil {
		return options{}, fmt.Errorf("-only: %w", err)
	}
	for _, path := range []*string{&settings.Devcluster, &settings.Operator, &settings.Binaries, &settings.Config, &settings.Against, &settings.page} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return options{}, err
		}
	}
	return settings, nil
}

// scenarios returns the scenarios of the suite that -only selects.
func (o options) scenarios() []scenario.Scenario {
	all := scenario.Speed(o.Against != "")
	if o.suite == suiteScale {
		all = scenario.Scale()
	}
	var chosen []scenario.Scenario
	for _, candidate := range all {
		if o.only.MatchString(candidate.Name) {
			chosen = append(chosen, candidate)
		}
	}
	return chosen
}
