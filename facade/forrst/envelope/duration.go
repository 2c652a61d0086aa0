package envelope

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	"forrst.dev/lock-operator/lock/strictjson"
)

// Unit is what the value of a [Duration] counts: millisecond, second, minute, hour or day (docs/forrst.md, section 3.1).
type Unit string

// milliseconds are the lengths of the units. There is no calendar arithmetic: a day has 24 hours.
var milliseconds = map[Unit]int64{"millisecond": 1, "second": 1000, "minute": 60 * 1000, "hour": 60 * 60 * 1000, "day": 24 * 60 * 60 * 1000}

// Duration is a span of time as requests and responses write it.
type Duration struct {
	// Value is the number of units, in the digits that were sent.
	Value json.Number `json:"value"`
	Unit  Unit        `json:"unit"`
	// Length is the same as a time.Duration: whole milliseconds, with a fraction rounded up.
	Length time.Duration `json:"-"`
}

// Span returns the length of the duration, or zero if d is nil.
func (d *Duration) Span() time.Duration {
	if d == nil {
		return 0
	}
	return d.Length
}

// NewDuration returns length in whole seconds if that is exact, and otherwise in milliseconds, rounded up.
func NewDuration(length time.Duration) Duration {
	if length%time.Second == 0 {
		return newDuration(int64(length/time.Second), "second")
	}
	value := length.Milliseconds()
	if length%time.Millisecond > 0 && value < maxMilliseconds {
		value++
	}
	return newDuration(value, "millisecond")
}

// NewMilliseconds returns length in whole milliseconds, rounded down: what was measured is written so
// (docs/forrst.md, section 3.1).
func NewMilliseconds(length time.Duration) Duration {
	return newDuration(length.Milliseconds(), "millisecond")
}

func newDuration(value int64, unit Unit) Duration {
	length := time.Duration(value*milliseconds[unit]) * time.Millisecond
	return Duration{Value: json.Number(strconv.FormatInt(value, 10)), Unit: unit, Length: length}
}

// maxMilliseconds is the longest time.Duration.
const maxMilliseconds = math.MaxInt64 / int64(time.Millisecond)

// DurationLimits says which durations are accepted.
type DurationLimits struct {
	// Max is the longest one. Zero means the longest time.Duration, 292 years.
	Max time.Duration
	// Unbounded reads what is longer than the longest time.Duration as that, for callers that bound it by themselves. Max is
	// ignored.
	Unbounded bool
	// AllowZero accepts a value of zero. Negative values never are.
	AllowZero bool
}

// decimal matches what a string may hold for the value of a duration: a number as JSON writes it, without an exponent.
var decimal = regexp.MustCompile(`^-?(?:0|[1-9]\d*)(?:\.\d+)?$`)

// AsDuration returns the object itself as a duration (docs/forrst.md, section 3.1), or nil if it is none within limits.
// Without a unit, the value counts seconds. The value may be a string that holds a plain decimal number.
func (f *Fields) AsDuration(limits DurationLimits) *Duration {
	f.Require("value")
	value, hasValue := f.number("value")
	unit, hasUnit := f.unit()
	if !hasValue {
		return nil
	}
	magnitude, isNegative := strings.CutPrefix(value, "-")
	// Sign and zero are wrong whatever the unit would be.
	count, ok := ceil(magnitude, max(milliseconds[unit], 1))
	length := time.Duration(count) * time.Millisecond
	switch {
	case isNegative:
		f.Fail("value", "must not be negative")
		return nil
	case length == 0 && ok && !limits.AllowZero:
		f.Fail("value", "must be more than zero")
		return nil
	case !hasUnit:
		return nil
	case limits.Unbounded && !ok:
		length = math.MaxInt64
	case !ok || !limits.Unbounded && limits.Max > 0 && length > limits.Max:
		f.Tell("value", exceeding(limits.Max))
		return nil
	}
	return &Duration{Value: json.Number(value), Unit: unit, Length: length}
}

// number returns the digits of a number.
func (f *Fields) number(name string) (string, bool) {
	raw := f.Raw(name)
	switch {
	case raw == nil:
		return "", false
	case strictjson.IsNumber(raw):
		return string(raw), true
	case raw[0] == '"':
		if text := f.Members.Text(name); decimal.MatchString(text) {
			return text, true
		}
	}
	f.Fail(name, "must be a number, or a string that holds a decimal number")
	return "", false
}

func (f *Fields) unit() (Unit, bool) {
	raw := f.Raw("unit")
	if raw == nil {
		return "second", f.IsAbsent("unit")
	}
	if raw[0] == '"' {
		if unit := Unit(strictjson.Unquote(raw)); milliseconds[unit] > 0 {
			return unit, true
		}
	}
	f.Fail("unit", "must be millisecond, second, minute, hour or day")
	return "", false
}

// UnmarshalJSON reads a duration of any length. It is for what services send; for what callers send there is
// [Fields.Duration], which knows limits and says where an error is.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var problems Errors
	fields, _ := ReadObject(data, "", &problems) // What is no object has no value, which is required.
	read := fields.AsDuration(DurationLimits{AllowZero: true})
	if len(problems) > 0 {
		return problems
	}
	*d = *read
	return nil
}

// BoundDetails are the details of INVALID_ARGUMENTS about a duration that is too long.
type BoundDetails struct {
	Max Duration `json:"max"`
}

// exceeding is what is wrong with the value of a duration that is longer than the limit. Zero means the longest
// time.Duration.
func exceeding(limit time.Duration) strictjson.Fault {
	if limit == 0 {
		return strictjson.Fault{Detail: "is too large"}
	}
	longest := NewDuration(limit)
	return strictjson.Fault{Detail: fmt.Sprintf("must be at most %s %ss", longest.Value, longest.Unit), Extra: BoundDetails{longest}}
}

// Exceeds is the problem with the duration of that name, in the object that pointer leads to, if it is longer than the
// limit.
func Exceeds(limit time.Duration, pointer, name string) Error {
	fault := exceeding(limit)
	fault.Base, fault.Path = pointer, []string{name, "value"}
	return problemOf(InvalidArguments, fault)
}

// significantDigits of a value are kept; beyond them it only matters that there are more.
const significantDigits = 40

// ceil returns the product of a JSON number that is not negative and factor, rounded up. It reports false if that is more
// than maxMilliseconds.
func ceil(number string, factor int64) (int64, bool) {
	if whole, err := strconv.ParseInt(number, 10, 64); err == nil {
		return whole * factor, whole <= maxMilliseconds/factor
	}
	digits, point := scientific(number)
	switch {
	case digits == "":
		return 0, true
	case point > significantDigits:
		return 0, false
	case point < -significantDigits:
		return 1, true
	case len(digits) > significantDigits:
		digits = digits[:significantDigits] + "1"
	}
	product, _ := new(big.Rat).SetString(fmt.Sprintf("0.%se%d", digits, point))
	product.Mul(product, new(big.Rat).SetInt64(factor))
	quotient, remainder := new(big.Int).QuoRem(product.Num(), product.Denom(), new(big.Int))
	if remainder.Sign() != 0 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return quotient.Int64(), quotient.Cmp(big.NewInt(maxMilliseconds)) <= 0
}

// scientific returns a number as 0.digits times ten to the power of point, without zeros at either end of digits. A number
// of a few bytes can have an exponent that would keep big.Rat busy for minutes, so the exponent is only ever looked at.
func scientific(number string) (digits string, point int) {
	number, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	whole, fraction, _ := strings.Cut(number, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	point = len(digits) - len(fraction)
	if exponent != "" {
		// Out of range, Atoi returns the nearest int; adding to that must not overflow.
		shift, _ := strconv.Atoi(exponent)
		point += min(max(shift, math.MinInt32), math.MaxInt32)
	}
	return strings.TrimRight(digits, "0"), point
}

// FormatTimestamp returns t as the protocol writes it (docs/forrst.md, section 3.2): RFC 3339 in UTC. A fraction of a
// second is written with six digits, because some parsers accept only three or six, and left out if it is zero.
func FormatTimestamp(t time.Time) string {
	t = t.UTC().Truncate(time.Microsecond)
	if t.Nanosecond() == 0 {
		return t.Format(time.RFC3339)
	}
	return t.Format("2006-01-02T15:04:05.000000Z")
}
