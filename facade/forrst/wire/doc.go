// Package wire is what the façade and its clients say to each other beyond the Forrst
// protocol, as JSON: the extended lock functions, their arguments and results, and
// the fencing token. It is described in docs/forrst.md, section 12.10.
//
// Scopes are "function" and "global" as in the atomic lock extension; times are RFC
// 3339 in UTC.
package wire
