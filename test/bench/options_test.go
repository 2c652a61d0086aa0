package main

import (
	"path/filepath"
	"testing"
)

func TestParseOptions(t *testing.T) {
	settings, err := parseOptions([]string{"-quick", "-only=builds", "-against=bin/against/abc", "-suite=speed"})
	if err != nil {
		t.Fatal(err)
	}
	if !settings.isTrial || settings.Effort != 0.1 || settings.LiveLocks != 10_000 || !filepath.IsAbs(settings.Against) || settings.page != "" {
		t.Errorf("the options are %+v", settings)
	}
	if chosen := settings.scenarios(); len(chosen) != 1 || chosen[0].Name != "builds" {
		t.Errorf("the scenarios are %v, want builds alone", chosen)
	}
	if got := settings.RoundsOf(5); got != 2 {
		t.Errorf("a trial has %d rounds, want two at least", got)
	}
	for _, wrong := range [][]string{{"-suite=size"}, {"-effort=0"}, {"-live-locks=0"}, {"-only=("}} {
		if _, err := parseOptions(wrong); err == nil {
			t.Errorf("%v was accepted", wrong)
		}
	}
}

func TestBuildsAreComparedOnlyWithAnotherOne(t *testing.T) {
	settings, err := parseOptions([]string{"-only=^builds$"})
	if err != nil {
		t.Fatal(err)
	}
	if chosen := settings.scenarios(); len(chosen) != 0 {
		t.Errorf("without -against, %d scenarios compare builds", len(chosen))
	}
}
