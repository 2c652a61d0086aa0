package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

var commands = []string{"run", "up", "down"}

// mostNodes bounds a cluster that is a few processes on one machine.
const mostNodes = 100

// options are the options of the command line and the environment. All paths are absolute,
// or empty.
type options struct {
	command string
	// flags are the unparsed arguments after the command.
	flags []string
	// dir is the state folder.
	dir string
	// config is the folder with the kustomize overlay "dev".
	config string
	// binaries is the folder of the control plane's binaries.
	binaries string
	// operator is the operator's binary, or empty for a cluster without operator and manifests.
	operator string
	// nodes is how many nodes are simulated, by the binary kwok.
	nodes int
	kwok  string
	// operatorUser is the user name of the operator.
	operatorUser string
	// facade is the address that the façade listens on.
	facade string
	// routes is the file of routes, or empty.
	routes string
	// maxLocks is how many locks a namespace may have; empty for the operator's default.
	maxLocks string
	// auth is authNone or authToken.
	auth string
	// observe asks for a Prometheus beside the cluster, which prometheus is the program of, and which
	// reads the metrics once per scrapeInterval.
	observe        bool
	prometheus     string
	scrapeInterval time.Duration
}

func parseOptions(args []string, getenv func(string) string) (options, error) {
	if len(args) == 0 || !slices.Contains(commands, args[0]) {
		return options{}, fmt.Errorf("usage: devcluster %s [flags]; -h after a command lists the flags", strings.Join(commands, "|"))
	}
	opts := options{command: args[0], flags: args[1:]}
	fromEnv := func(name, otherwise string) string {
		if value := getenv(name); value != "" {
			return value
		}
		return otherwise
	}

	flags := flag.NewFlagSet("devcluster "+opts.command, flag.ExitOnError)
	flags.StringVar(&opts.dir, "dir", ".dev",
		"state `folder`: kubeconfig, logs, certificates, data")
	flags.StringVar(&opts.config, "config", "config",
		"`folder` of the manifests; its overlay dev is installed")
	flags.StringVar(&opts.operator, "operator", filepath.Join("bin", "lock-operator"),
		"`path` of the operator binary; empty for a cluster without operator and manifests")
	flags.StringVar(&opts.operatorUser, "operator-user", "system:serviceaccount:forrst-system:lock-operator",
		"`name` of the operator's service account, as the manifests install it")
	flags.StringVar(&opts.binaries, "binaries", fromEnv("KUBEBUILDER_ASSETS", filepath.Join("bin", "k8s")),
		"`folder` of the control plane's binaries; KUBEBUILDER_ASSETS sets the default")
	flags.StringVar(&opts.facade, "facade-addr", fromEnv("FACADE_ADDR", "127.0.0.1:8080"),
		"loopback `address` of the façade, with port 0 for any free port; FACADE_ADDR sets the default")
	flags.StringVar(&opts.routes, "routes", getenv("ROUTES"),
		"`file` with the routes of the functions that the façade forwards; ROUTES sets the default")
	flags.StringVar(&opts.maxLocks, "max-locks-per-namespace", "",
		"how many locks a namespace may have; empty for the `number` that is the operator's default")
	flags.StringVar(&opts.auth, "auth", fromEnv("AUTH", authNone),
		"how the façade authenticates its callers, none or `token`; AUTH sets the default")
	observe, err := strconv.ParseBool(fromEnv("OBSERVE", "0"))
	if err != nil {
		return options{}, fmt.Errorf("OBSERVE is %q; it must be 1 or 0", getenv("OBSERVE"))
	}
	flags.BoolVar(&opts.observe, "observe", observe,
		"start a Prometheus that reads the operator's metrics; OBSERVE sets the default")
	flags.StringVar(&opts.prometheus, "prometheus", fromEnv("PROMETHEUS", filepath.Join("bin", "prometheus", "usr", "bin", "prometheus")),
		"`path` of Prometheus; if there is none, that of the machine is taken; PROMETHEUS sets the default")
	flags.DurationVar(&opts.scrapeInterval, "scrape-interval", 5*time.Second, "`time` between two reads of the metrics")
	nodes, err := strconv.Atoi(fromEnv("NODES", "0"))
	if err != nil {
		return options{}, fmt.Errorf("NODES: %w; it must be a number of nodes", err)
	}
	flags.IntVar(&opts.nodes, "nodes", nodes,
		"`number` of simulated nodes, whose pods only seem to run; NODES sets the default")
	flags.StringVar(&opts.kwok, "kwok", filepath.Join("bin", "kwok"),
		"`path` of the binary of kwok, which simulates nodes")
	if err := flags.Parse(opts.flags); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q: devcluster %s takes flags only", flags.Arg(0), opts.command)
	}

	if opts.nodes < 0 || opts.nodes > mostNodes {
		return options{}, fmt.Errorf("NODES is %d; it must be 0 to %d", opts.nodes, mostNodes)
	}
	if opts.auth != authNone && opts.auth != authToken {
		return options{}, fmt.Errorf("AUTH is %q; it must be %s or %s", opts.auth, authNone, authToken)
	}

	for _, path := range []*string{&opts.dir, &opts.config, &opts.operator, &opts.binaries, &opts.kwok, &opts.prometheus, &opts.routes} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return options{}, err
		}
		*path = absolute
	}
	return opts, nil
}

// chosen returns the options in which two clusters may visibly differ, by the variables that
// set them.
func (o options) chosen() map[string]string {
	observe := ""
	if o.observe {
		observe = "1"
	}
	return map[string]string{"AUTH": o.auth, "FACADE_ADDR": o.facade, "NODES": strconv.Itoa(o.nodes), "OBSERVE": observe, "ROUTES": o.routes}
}
