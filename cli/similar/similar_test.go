package similar_test

import (
	"slices"
	"testing"

	"forrst.dev/lock-operator/cli/similar"
)

func TestSimilarNames(t *testing.T) {
	names := []string{"billing:report", "billing:close", "namespace", "ns", "Grüße", "reports:a", "reports:b", "reports:c", "reports:d"}
	for typed, want := range map[string][]string{
		"BILLING:REPORT": {"billing:report"},
		"billing:reprot": {"billing:report"},
		"billing:repo":   {"billing:report"},
		"billing":        {"billing:close", "billing:report"},
		"namespcae":      {"namespace"},
		"namespa":        {"namespace"},
		"nx":             {}, // Too short for a guess.
		"namespace":      {}, // What was typed is no guess.
		"grüsse":         {"Grüße"},
		"reports":        {"reports:a", "reports:b", "reports:c"},
		"nosuch":         {},
		"":               {},
	} {
		if got := similar.To(typed, names); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", typed, got, want)
		}
	}
}
