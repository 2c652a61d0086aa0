// Package durations reads lengths of time, by one grammar for all flags.
package durations

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"

	"forrst.dev/lock-operator/lock"
)

// Parse reads a length of time as Go writes it, such as "1h30m", or with whole weeks and days, such as "1d12h".
func Parse(text string) (time.Duration, error) {
	if length, err := time.ParseDuration(text); err == nil {
		return length, nil
	}
	length, err := model.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no length of time; write one such as 90s, 1h30m or 2d", text)
	}
	return time.Duration(length), nil
}

// forever is the text of [lock.WaitForever].
const forever = "forever"

// Var defines a flag for a length of time, with its default.
func Var(flags *pflag.FlagSet, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	flags.Var(&flag{length: into}, name, usage)
}

// VarOrForever is [Var] for how long to wait, which may be "forever".
func VarOrForever(flags *pflag.FlagSet, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	flags.Var(&flag{length: into, mayBeForever: true}, name, usage)
}

// flag implements [pflag.Value].
type flag struct {
	length       *time.Duration
	mayBeForever bool
}

// Set implements [pflag.Value].
func (f *flag) Set(text string) (err error) {
	if f.mayBeForever && text == forever {
		*f.length = lock.WaitForever
		return nil
	}
	*f.length, err = Parse(text)
	if err != nil && f.mayBeForever {
		return fmt.Errorf("%w, or %s", err, forever)
	}
	return err
}

// String implements [pflag.Value].
func (f *flag) String() string {
	if f.length == nil || *f.length == 0 {
		return "0" // A default that pflag does not show.
	}
	return f.length.String()
}

// Type implements [pflag.Value].
func (f *flag) Type() string { return "duration" }
