package main

import (
	"errors"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr/funcr"
)

// unset removes a variable from the environment until the test ends.
func unset(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "") // It is restored at the end.
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryIsLimitedByTheContainer(t *testing.T) {
	none := func(err error) memlimit.Provider { return func() (uint64, error) { return 0, err } }
	for name, test := range map[string]struct {
		environment string
		container   memlimit.Provider
		want        int64
	}{
		"a share of the container's limit":     {container: memlimit.Limit(1000 << 20), want: 900 << 20},
		"no limit in a container without one":  {container: none(memlimit.ErrNoLimit), want: math.MaxInt64},
		"no limit outside of a container":      {container: none(memlimit.ErrNoCgroup), want: math.MaxInt64},
		"no limit if it cannot be read":        {container: none(errors.New("no such file")), want: math.MaxInt64},
		"the environment before the container": {environment: "512MiB", container: memlimit.Limit(1000 << 20), want: math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			former := debug.SetMemoryLimit(math.MaxInt64)
			t.Cleanup(func() { debug.SetMemoryLimit(former) })
			unset(t, "AUTOMEMLIMIT") // It would replace the share.
			unset(t, "GOMEMLIMIT")
			if test.environment != "" {
				t.Setenv("GOMEMLIMIT", test.environment)
			}
			lines := 0
			limitMemory(test.container, funcr.New(func(string, string) { lines++ }, funcr.Options{}))
			// The runtime reads GOMEMLIMIT at its start: a later value must not be replaced.
			if got := debug.SetMemoryLimit(-1); got != test.want {
				t.Errorf("got a limit of %d bytes, want %d", got, test.want)
			}
			if lines != 1 {
				t.Errorf("logged %d lines, want 1", lines)
			}
		})
	}
}
