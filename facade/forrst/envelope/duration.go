package envelope

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Unit is what the value of a [Duration] counts. It is singular and in lower case.
type Unit string

// The units of durations (docs/forrst.md, section 3.1). There is no calendar arithmetic:
// a day has 24 hours.
const (
	Millisecond Unit = "millisecond"
	Second      Unit = "second"
	Minute      Unit = "minute"
	Hour        Unit = "hour"
	Day         Unit = "day"
)

// milliseconds is the length of the unit, or 0 for an unknown one.
func (u Unit) milliseconds() int64 {
	switch u {
	case Millisecond:
		return 1
	case Second:
		return 1000
	case Minute:
		return 60 * 1000
	case Hour:
		return 60 * 60 * 1000
	case Day:
		return 24 * 60 * 60 * 1000
	}
	return 0
}

// Duration is a span of time as requests and responses write it.
type Duration struct {
	// Value is the number of units, in the digits that were sent.
	Value json.Number `json:"value"`
	Unit  Unit        `json:"unit"`
	// Length is the same as a time.Duration: whole milliseconds, with a fraction
	// rounded up.
	Length time.Duration `json:"-"`
}

// NewDuration returns length in whole seconds if that is exact, and otherwise in
// milliseconds, rounded up.
func NewDuration(length time.Duration) Duration {
	value, unit := int64(length/time.Second), Second
	if length%time.Second != 0 {
		value, unit = length.Milliseconds(), Millisecond
		if length%time.Millisecond > 0 && value < maxMilliseconds {
			value++
		}
		length = time.Duration(value) * time.Millisecond
	}
	return Duration{Value: json.Number(strconv.FormatInt(value, 10)), Unit: unit, Length: length}
}

// NewMilliseconds returns length in whole milliseconds, rounded down: what was measured
// is written so (docs/forrst.md, section 3.1).
func NewMilliseconds(length time.Duration) Duration {
	length = length.Truncate(time.Millisecond)
	return Duration{
		Value:  json.Number(strconv.FormatInt(length.Milliseconds(), 10)),
		Unit:   Millisecond,
		Length: length,
	}
}

// maxMilliseconds is the longest time.Duration.
const maxMilliseconds = math.MaxInt64 / int64(time.Millisecond)

// DurationLimits says which durations are accepted.
type DurationLimits struct {
	// Max is the longest one. Zero means the longest time.Duration, 292 years.
	Max time.Duration
	// Unbounded reads what is longer than the longest time.Duration as that, for callers that
	// bound it by themselves. Max is ignored.
	Unbounded bool
	// AllowZero accepts a value of zero. Negative values never are.
	AllowZero bool
}

// isDecimal reports whether a string holds the value of a duration: a number as JSON
// writes it, without an exponent.
func isDecimal(text string) bool {
	scan := scanner{data: []byte(text)}
	return scan.number() == nil && scan.next == len(text) && !strings.ContainsAny(text, "eE")
}

// readDuration reads a duration object (docs/forrst.md, section 3.1), or returns nil if
// something is wrong. Without a unit, the value counts seconds. The value may be a string
// that holds a plain decimal number.
func readDuration(fields *Fields, limits DurationLimits) *Duration {
	value, hasValue := fields.number("value")
	unit, hasUnit := fields.unit("unit")
	if !hasValue {
		return nil
	}
	magnitude, isNegative := strings.CutPrefix(value, "-")
	// Sign and zero are wrong whatever the unit would be.
	milliseconds, ok := ceil(magnitude, max(unit.milliseconds(), 1))
	length := time.Duration(milliseconds) * time.Millisecond
	switch {
	case isNegative:
		fields.Fail("value", "must not be negative")
		return nil
	case length == 0 && ok && !limits.AllowZero:
		fields.Fail("value", "must be more than zero")
		return nil
	case !hasUnit:
		return nil
	case limits.Unbounded && !ok:
		length = math.MaxInt64
	case !ok || !limits.Unbounded && limits.Max > 0 && length > limits.Max:
		fields.errors.Add(Exceeds(limits.Max, fields.code, fields.Pointer("value")))
		return nil
	}
	return &Duration{Value: json.Number(value), Unit: unit, Length: length}
}

// number returns the digits of a required number.
func (f *Fields) number(name string) (string, bool) {
	raw, ok := f.require(name)
	if !ok {
		return "", false
	}
	if raw[0] == '-' || isDigit(raw[0]) {
		return string(raw), true
	}
	if text, isText := decodeText(raw); isText && isDecimal(text) {
		return text, true
	}
	f.Fail(name, "must be a number, or a string that holds a decimal number")
	return "", false
}

func (f *Fields) unit(name string) (Unit, bool) {
	raw, ok := f.find(name)
	if raw == nil {
		return Second, ok
	}
	text, _ := decodeText(raw)
	if Unit(text).milliseconds() == 0 {
		f.Fail(name, "must be millisecond, second, minute, hour or day")
		return "", false
	}
	return Unit(text), true
}

// Exceeds is the problem with a duration of which pointer leads to the value, and that is
// longer than the limit. Zero means the longest time.Duration.
func Exceeds(limit time.Duration, code Code, pointer string) Error {
	problem := Error{Code: code, Message: "value is too large"}
	if limit > 0 {
		longest := NewDuration(limit)
		problem.Message = fmt.Sprintf("value must be at most %s %ss", longest.Value, longest.Unit)
		problem = problem.With(struct {
			Max Duration `json:"max"`
		}{longest})
	}
	return problem.At(pointer)
}

// significantDigits of a value are kept; beyond them it only matters that there are more.
const significantDigits = 40

// ceil returns the product of a JSON number that is not negative and factor, rounded
// up. It reports false if that is more than maxMilliseconds.
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

// scientific returns a number as 0.digits times ten to the power of point, without
// zeros at either end of digits. A number of a few bytes can have an exponent that
// would keep big.Rat busy for minutes, so the exponent is only ever looked at.
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
