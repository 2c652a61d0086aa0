// Package limits bounds what each caller of the façade, the service accounts of each namespace and all callers together may
// use: calls in flight, memory for requests and answers, and what costs the API server something. All doors share one
// [Limiter]; it knows no protocol.
package limits
