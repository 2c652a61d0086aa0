// Package forrst is the door that speaks the Forrst protocol, at POST /forrst. It translates,
// and decides nothing about who holds what: that is package locks.
//
// One call goes through these steps, in the order of docs/forrst.md, section 1.6, for which [server.Calls]
// sees: the HTTP request is read (http.go), its envelope is decoded (package envelope), the function is
// looked up (functions.go), extensions and arguments are checked (extensions.go), and only
// when nothing can be refused do the extensions begin their work around the function
// (call.go). So a lock is never taken for a function that does not run.
//
// The codes of errors about locks, limits and access are chosen in errors.go. Those of each
// extension stand in its own file.
package forrst
