// Package envelope is the Forrst 0.1.0 protocol: envelopes, errors, durations,
// versions and extension names. It knows neither HTTP servers nor locks, and
// serves both ends of a call.
//
// What was sent is never reinterpreted on the way: arguments, options, results and
// details are [encoding/json.RawMessage], so that numbers keep their digits and
// unknown members survive.
//
// The decoder is stricter than [encoding/json]: member names are compared exactly,
// text must be valid UTF-8 without lone surrogates, nothing may follow the document,
// and nesting is bounded. In objects that the protocol defines, a member that is read
// must not be given twice: parsers disagree about which of the two counts, and two
// parties that read different keys would guard different locks. Members that are not
// read, such as those of context, are passed over.
package envelope
