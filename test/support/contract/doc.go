// Package contract specifies what every [lock.Backend] does. A suite runs them on a backend by calling [DescribeBackend] with
// what makes a [Fixture] of it. The specs do not sleep: they step the clock of the fixture if it has one, and otherwise have a
// lock expire by a renewal for a brief ttl, before whose end no request must be made. None fails because the machine is slow.
package contract
