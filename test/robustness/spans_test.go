package robustness_test

import (
	"cmp"
	"slices"
	"time"
)

// span is a time in which something holds, with both ends.
type span struct{ from, to time.Duration }

func (s span) length() time.Duration { return s.to - s.from }

func (s span) contains(other span) bool { return s.from <= other.from && other.to <= s.to }

// union returns the spans in order, with those that meet made one.
func union(spans []span) []span {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var joined []span
	for _, next := range spans {
		last := len(joined) - 1
		if last >= 0 && next.from <= joined[last].to {
			joined[last].to = max(joined[last].to, next.to)
			continue
		}
		joined = append(joined, next)
	}
	return joined
}

// intersect returns the times that lie in both. Each argument is in order and does not
// overlap itself.
func intersect(a, b []span) (both []span) {
	for len(a) > 0 && len(b) > 0 {
		if common := (span{max(a[0].from, b[0].from), min(a[0].to, b[0].to)}); common.from < common.to {
			both = append(both, common)
		}
		if a[0].to < b[0].to {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}

// subtract returns the times of the first that do not lie in the second. A gap that is a
// single instant divides a span. Each argument is in order and does not overlap itself.
func subtract(from, gaps []span) (left []span) {
	for _, rest := range from {
		for _, gap := range gaps {
			if gap.to < rest.from || gap.from > rest.to {
				continue
			}
			if rest.from < gap.from {
				left = append(left, span{rest.from, gap.from})
			}
			rest.from = max(rest.from, gap.to)
		}
		if rest.from < rest.to {
			left = append(left, rest)
		}
	}
	return left
}

// within reports whether one of the spans contains the span.
func within(spans []span, part span) bool {
	return slices.ContainsFunc(spans, func(whole span) bool { return whole.contains(part) })
}

func total(spans []span) (sum time.Duration) {
	for _, each := range spans {
		sum += each.length()
	}
	return sum
}
