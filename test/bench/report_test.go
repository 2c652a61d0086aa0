package main

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestFigureIsMissed(t *testing.T) {
	for name, test := range map[string]struct {
		figure figure
		want   bool
	}{
		"as much as the least bound":    {atLeast("x", 0.9, 0.9), false},
		"less than the least bound":     {atLeast("x", 0.899, 0.9), true},
		"as much as the greatest bound": {atMost("x", 64, 64, " KiB"), false},
		"more than the greatest bound":  {atMost("x", 64.1, 64, " KiB"), true},
		"outside of both bounds":        {figure{got: 1.11, least: 1, most: 1.1}, true},
		"a ratio without measurements":  {atLeast("x", math.NaN(), 0), true},
		"without bounds":                {noted("x", 12, ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.figure.isMissed(); got != test.want {
				t.Errorf("isMissed() = %v, want %v", got, test.want)
			}
		})
	}
}

func TestReportFailsWithAScenarioThatWasNotMeasured(t *testing.T) {
	r := &report{}
	r.note("keys", "façade", atLeast("ratio", 1, 0.9))
	if r.missed() {
		t.Error("a report without a missed figure counts as missed")
	}
	r.fail("hot key", errors.New("it broke"))
	if !r.missed() {
		t.Error("a scenario that was not measured does not count as missed")
	}
	var out strings.Builder
	r.print(&out)
	if !strings.Contains(out.String(), "hot key: not measured: it broke") {
		t.Errorf("the report lacks the failure:\n%s", out.String())
	}
}
