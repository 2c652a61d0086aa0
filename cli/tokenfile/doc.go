// Package tokenfile keeps the proof of a grant between two commands: in a file that only the user may
// read, or behind a file descriptor of the process. An owner token never gets into arguments,
// environment or output.
package tokenfile
