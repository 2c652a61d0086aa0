package main

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	module := func(version string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: version}} }
	for name, test := range map[string]struct {
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		"of the repository":            {info: module("v0.1.0"), want: "v0.1.0"},
		"of the linker":                {linked: "v0.2.0", info: module("v0.1.0"), want: "v0.2.0"},
		"of the linker alone":          {linked: "v0.2.0", info: module("(devel)"), want: "v0.2.0"},
		"unknown":                      {info: module("(devel)")},
		"of a build without any notes": {},
	} {
		if got := versionOf(test.linked, test.info); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
