package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
)

// options are the options of the command line. All paths are absolute.
type options struct {
	// suite is "speed" or "scale".
	suite string
	// only selects scenarios by name.
	only *regexp.Regexp
	// effort is a factor for the number of rounds.
	effort float64
	// liveLocks is how many locks the suite scale holds.
	liveLocks int
	// devcluster and operator are programs, binaries is the folder of the control plane's
	// programs, config the folder of the manifests.
	devcluster, operator, binaries, config string
	// against is another build of the operator to compare with, or empty.
	against string
}

func parseOptions(arguments []string) (options, error) {
	var settings options
	var only string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&settings.suite, "suite", "speed", "which `suite` to run: speed or scale")
	flags.StringVar(&only, "only", "", "run only scenarios that match the `expression`")
	quick := flags.Bool("quick", false, "a tenth of the rounds and of the live locks: a trial, too short to judge by")
	flags.Float64Var(&settings.effort, "effort", 1, "the `factor` for the number of rounds")
	flags.IntVar(&settings.liveLocks, "live-locks", 100_000, "how many locks the suite scale holds")
	flags.StringVar(&settings.devcluster, "devcluster", "bin/devcluster", "`path` of the development cluster's program")
	flags.StringVar(&settings.operator, "operator", "bin/lock-operator", "`path` of the operator")
	flags.StringVar(&settings.binaries, "binaries", "bin/k8s", "`folder` of the control plane's programs")
	flags.StringVar(&settings.config, "config", "config", "`folder` of the manifests")
	flags.StringVar(&settings.against, "against", "", "`path` of another build of the operator, whose façade to compare with")
	if err := flags.Parse(arguments); err != nil {
		return options{}, err
	}
	if settings.suite != "speed" && settings.suite != "scale" {
		return options{}, fmt.Errorf("-suite: %q is neither speed nor scale", settings.suite)
	}
	if *quick {
		settings.effort /= 10
		settings.liveLocks /= 10
	}
	if settings.effort <= 0 || settings.liveLocks < 1 {
		return options{}, errors.New("-effort and -live-locks must be positive")
	}
	var err error
	if settings.only, err = regexp.Compile(only); err != nil {
		return options{}, fmt.Errorf("-only: %w", err)
	}
	for _, path := range []*string{&settings.devcluster, &settings.operator, &settings.binaries, &settings.config} {
		if *path, err = filepath.Abs(*path); err != nil {
			return options{}, err
		}
	}
	if settings.against != "" {
		settings.against, err = filepath.Abs(settings.against)
	}
	return settings, err
}

// roundsOf returns the number of rounds to run if count is usual; at least two.
func (o options) roundsOf(count int) int { return max(2, int(o.effort*float64(count))) }

// scenarios returns the scenarios of the suite that -only selects.
func (o options) scenarios() []scenario {
	all := speedScenarios()
	if o.suite == "scale" {
		all = scaleScenarios()
	}
	if o.against != "" {
		all = []scenario{{"builds, 1", builds(1)}, {"builds, 16", builds(16)}}
	}
	var chosen []scenario
	for _, candidate := range all {
		if o.only.MatchString(candidate.name) {
			chosen = append(chosen, candidate)
		}
	}
	return chosen
}
