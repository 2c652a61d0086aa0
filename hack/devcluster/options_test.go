package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOptionsComeFromFlagsThenEnvironmentThenDefaults(t *testing.T) {
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"FACADE_ADDR": "127.0.0.1:1", "KUBEBUILDER_ASSETS": "/assets", "ROUTES": "/routes.yaml"}

	for name, test := range map[string]struct {
		args         []string
		environment  map[string]string
		wantFacade   string
		wantBinaries string
		wantRoutes   string
	}{
		"defaults": {
			args:         []string{"run"},
			wantFacade:   "127.0.0.1:8080",
			wantBinaries: filepath.Join(working, "bin", "k8s"),
		},
		"the environment replaces defaults": {
			args:         []string{"run"},
			environment:  environment,
			wantFacade:   "127.0.0.1:1",
			wantBinaries: "/assets",
			wantRoutes:   "/routes.yaml",
		},
		"flags replace the environment": {
			args:         []string{"up", "--facade-addr=127.0.0.1:2", "--binaries=other", "--routes=r.yaml"},
			environment:  environment,
			wantFacade:   "127.0.0.1:2",
			wantBinaries: filepath.Join(working, "other"),
			wantRoutes:   filepath.Join(working, "r.yaml"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts, err := parseOptions(test.args, func(name string) string { return test.environment[name] })
			if err != nil {
				t.Fatal(err)
			}
			if opts.command != test.args[0] {
				t.Errorf("command = %q, want %q", opts.command, test.args[0])
			}
			if opts.facade != test.wantFacade {
				t.Errorf("façade = %q, want %q", opts.facade, test.wantFacade)
			}
			if opts.routes != test.wantRoutes {
				t.Errorf("routes = %q, want %q", opts.routes, test.wantRoutes)
			}
			if opts.binaries != test.wantBinaries {
				t.Errorf("binaries = %q, want %q", opts.binaries, test.wantBinaries)
			}
		})
	}
}

func TestInvalidArgumentsAreExplained(t *testing.T) {
	for name, test := range map[string]struct {
		args    []string
		observe string
		want    string
	}{
		"no command":         {nil, "", "usage: devcluster run|up|down"},
		"unknown command":    {[]string{"start"}, "", "usage: devcluster run|up|down"},
		"an unknown OBSERVE": {[]string{"run"}, "maybe", `OBSERVE is "maybe"`},
		"an argument":        {[]string{"down", "now"}, "1", `unexpected argument "now"`},
		"too many nodes":     {[]string{"run", "--nodes=101"}, "", "NODES is 101; it must be 0 to 100"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(test.args, func(name string) string {
				return map[string]string{"OBSERVE": test.observe}[name]
			})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestNodesComeFromTheEnvironment(t *testing.T) {
	opts, err := parseOptions([]string{"run"}, func(name string) string { return map[string]string{"NODES": "2"}[name] })
	if err != nil || opts.nodes != 2 || opts.chosen()["NODES"] != "2" {
		t.Errorf("nodes = %d, chosen = %v, error = %v, want 2", opts.nodes, opts.chosen(), err)
	}
	if _, err := parseOptions([]string{"run"}, func(name string) string { return map[string]string{"NODES": "one"}[name] }); err == nil || !strings.Contains(err.Error(), "NODES") {
		t.Errorf("error = %v, want one that names NODES", err)
	}
}
