// Package peers connects the replicas of the façade: it watches which of them are ready, and lets them and no
// one else ask each other about the lines of package lock/line.
package peers
