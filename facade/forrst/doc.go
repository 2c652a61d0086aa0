// Package forrst is the HTTP door to locks: it speaks the Forrst protocol at
// POST /forrst and answers the probes /healthz and /readyz.
//
// One call goes through these steps, in the order of section 1.6 of docs/forrst.md:
// the HTTP request is checked and read (http.go), the envelope is decoded (package
// forrst), the function is looked up (functions.go), its extensions and arguments are
// checked, and only when nothing can be refused any more do the extensions begin
// their work around the function (call.go). So a lock is never taken for a function
// that does not run.
//
// A call may wait for its lock (acquire.go). Until it is granted it costs the memory of
// its connection and no more, and it ends with its client and with the server (drain.go).
//
// Locks are in the hands of [Locks]. This package translates, and decides nothing
// about who holds what.
package forrst
