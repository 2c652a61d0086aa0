package rules

import (
	"errors"
	"testing"
	"time"
)

func TestValidateSize(t *testing.T) {
	old := live(t)
	cases := map[string]struct {
		user          string
		after         time.Duration
		before, bytes int
		want          bool
	}{
		"a stranger up to the bound":           {"bob", 0, 1000, maxForeignBytes, true},
		"a stranger over the bound":            {"bob", 0, 1000, maxForeignBytes + 1, false},
		"a stranger who makes it smaller":      {"bob", 0, maxBytes + 1, maxBytes, true},
		"a stranger who leaves it large":       {"bob", 0, maxBytes, maxBytes, true},
		"a stranger who takes it over":         {"bob", time.Hour, 1000, maxBytes, true},
		"the holder up to the bound":           {"alice", 0, 1000, maxBytes, true},
		"the holder over the bound":            {"alice", 0, 1000, maxBytes + 1, false},
		"the holder of a lock over the bound":  {"alice", 0, maxBytes + 1, maxBytes + 1, true},
		"the garbage collector, which tidies":  {"system:kube-controller-manager", 0, maxBytes, maxBytes + 100, true},
		"a stranger who takes over, too large": {"bob", time.Hour, 1000, maxBytes + 1, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			err := Change{Old: old, User: test.user}.ValidateSize(test.before, test.bytes, noon.Add(test.after))
			if (err == nil) != test.want || err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v, want allowed: %t", err, test.want)
			}
		})
	}
	if err := ValidateSize(maxBytes); err != nil {
		t.Error(err)
	}
	if err := ValidateSize(maxBytes + 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("a new lock over the bound: %v", err)
	}
}
