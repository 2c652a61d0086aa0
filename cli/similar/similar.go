// Package similar finds what was probably meant by a name that was mistyped.
package similar

import (
	"cmp"
	"slices"
	"strings"
)

const (
	// most is how many names are proposed.
	most = 3
	// leastPart is the length from which on a part of a name is taken for the name.
	leastPart = 3
)

// To returns the names that are like the one that was typed, the most similar ones first, and three at most. These
// are names with other capitals, with up to two letters that differ (one in a short name), and those of which the
// typed one is a part.
func To(typed string, names []string) []string {
	type match struct {
		name     string
		distance int
	}
	var matches []match
	lower := strings.ToLower(typed)
	for _, name := range names {
		other := strings.ToLower(name)
		apart, isPart := distance(lower, other), len(lower) >= leastPart && strings.Contains(other, lower)
		if name != typed && (isPart || apart <= min(2, len(lower)/3)) {
			matches = append(matches, match{name, apart})
		}
	}
	slices.SortFunc(matches, func(a, b match) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	matches = matches[:min(len(matches), most)]
	found := make([]string, 0, len(matches))
	for _, each := range matches {
		found = append(found, each.name)
	}
	return found
}

// distance returns how many letters must be put in, left out, replaced, or exchanged with the next one.
func distance(a, b string) int {
	one, other := []rune(a), []rune(b)
	if max(len(one)-len(other), len(other)-len(one)) > 2 {
		return max(len(one), len(other)) // Not worth the time: keys may be long.
	}
	var before []int
	last := make([]int, len(other)+1)
	for column := range last {
		last[column] = column
	}
	for row := 1; row <= len(one); row++ {
		current := make([]int, len(other)+1)
		current[0] = row
		for column := 1; column <= len(other); column++ {
			replace := last[column-1]
			if one[row-1] != other[column-1] {
				replace++
			}
			current[column] = min(last[column]+1, current[column-1]+1, replace)
			if row > 1 && column > 1 && one[row-1] == other[column-2] && one[row-2] == other[column-1] {
				current[column] = min(current[column], before[column-2]+1)
			}
		}
		before, last = last, current
	}
	return last[len(other)]
}
