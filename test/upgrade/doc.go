// Package upgrade proves that an installation is upgraded from an earlier revision to this tree and
// rolled back while clients use it: no call fails, no held lock is lost, and no fencing token falls.
package upgrade
