// Package compact keeps Locks in a quarter of the memory that they take as structs. Most locks lie in
// the caches of a process for much longer than they are looked at.
package compact
