package main

import (
	"fmt"
	"maps"
	"slices"
)

// chosen returns the options by which one cluster differs from another for those who use
// it, by the variables that set them.
func (o options) chosen() map[string]string {
	return map[string]string{"AUTH": o.auth, "FACADE_ADDR": o.facade, "ROUTES": o.routes}
}

// differences says in which options a cluster that runs is not the one that is wanted.
func differences(running, wanted map[string]string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if running[name] != wanted[name] {
			found = append(found, fmt.Sprintf("%s is %q, not %q", name, running[name], wanted[name]))
		}
	}
	return found
}
