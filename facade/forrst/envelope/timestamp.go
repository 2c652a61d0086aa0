package envelope

import "time"

const (
	secondsLayout      = "2006-01-02T15:04:05Z"
	microsecondsLayout = "2006-01-02T15:04:05.000000Z"
)

// ParseTimestamp reads RFC 3339 with a zone and any fraction of a second (docs/forrst.md,
// section 3.2).
func ParseTimestamp(text string) (time.Time, error) { return time.Parse(time.RFC3339, text) }

// FormatTimestamp returns t as the protocol writes it (docs/forrst.md, section 3.2): RFC
// 3339 in UTC. A fraction of a second is written with six digits, because some parsers
// accept only three or six, and left out if it is zero.
func FormatTimestamp(t time.Time) string {
	t = t.UTC().Truncate(time.Microsecond)
	if t.Nanosecond() == 0 {
		return t.Format(secondsLayout)
	}
	return t.Format(microsecondsLayout)
}
