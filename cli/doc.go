// Package cli has the commands of kubectl-lock, one file each. Package session gives
// them streams, clock, flags and clients; package failure their errors and exit
// statuses; package human their times; package terminal the width and colours.
//
// # How to add a command
//
// Write newNAME(s *session.Session) *cobra.Command in NAME.go, and add it to the list in
// root.go. A struct of the command's options with complete and run methods holds the
// rest; what grows becomes a package below cli.
//
//   - RunE returns errors and never exits or prints them: [failure.New] says what was
//     wrong and what the user can do, [failure.From] is applied to all others.
//     [failure.SilentError] is an exit status without a message.
//   - Args is oneKey(s) for commands of one KEY, newKey(s) for those that take its lock, or
//     noArgs, which say what is wrong. A
//     KEY is a full key without "lock:": "key", or "function:key". ValidArgsFunction is
//     completeKeys(s) where the KEY is that of a lock that is held.
//   - Write to s.Out and s.ErrOut only, read s.Now and s.Clock only. A command to type is
//     s.Command(…), or s.Kubectl(…) for one of kubectl itself, which have the user's flags.
//   - Example and Long are part of docs/cli, which "make generate" writes.
//   - Main passes a context that never ends: a command that has something to undo
//     catches signals by itself.
//   - Test with commandtest_test.go: run(t, options, args…) returns what was printed and
//     the exit status, with a fake cluster or package locktest's backend and a stopped
//     clock. golden.Check compares it with testdata; go test -update writes that.
package cli
