// Package envelope is the Forrst 0.1.0 protocol: envelopes, errors, durations,
// versions and extension names. It knows neither HTTP servers nor locks, and
// serves both ends of a call.
//
// What was sent is never reinterpreted on the way: arguments, options, results and
// details are [encoding/json.RawMessage], so that numbers keep their digits and
// unknown members survive.
//
// The decoder is that of package strictjson: in objects that the protocol defines, a member
// that is read must not be given twice. Members that are not read, such as those of context,
// are passed over.
package envelope
