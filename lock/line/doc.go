// Package line makes the queues of several replicas one line for each lock, first in, first out.
//
// For each lock one replica is home to the line: the one that rendezvous hashing chooses among those that
// are ready. A replica that gets a call which has to wait enlists it at home, over one stream to each other
// replica, and the home hands the lock from one waiter to the next in one write each. A release goes to the
// replica that has granted the lock.
//
// A replica that is not among the members is a guest. It is never home while it reaches a member, and serves none: its
// callers stand in the lines of the members. While it reaches none, they wait in a queue of its own.
//
// What the replicas tell each other is a hint. etcd decides every grant: two replicas that both take
// themselves for home cost time, never exclusion. Whatever goes wrong at home, the replica of the caller
// finds the lock out by itself.
package line
