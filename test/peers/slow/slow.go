// Package slow stands for package time in suites that give a lock no longer than a round trip to an API server
// takes: its clock runs slower by [Factor]. Adapters multiply what such a suite asks for by the same number, so
// that both agree on how long it is.
package slow

import "time"

// Factor makes the 5 ms of redislock's suite long enough for a write to etcd through an API server and its webhook,
// and its hour no longer than the longest ttl.
const Factor = 20

// Duration is [time.Duration].
type Duration = time.Duration

// The units of [time], in the time of the suite.
const (
	Millisecond = time.Millisecond
	Second      = time.Second
	Minute      = time.Minute
	Hour        = time.Hour
)

// Sleep is [time.Sleep] in the time of the suite.
func Sleep(length Duration) { time.Sleep(length * Factor) } //nolint:forbidigo // what the suite calls

// Now is [time.Now]. Only an example that does not run takes it.
func Now() time.Time { return time.Now() }
