// Package peers connects the replicas of the façade: it watches which of them are ready, and lets them, guests and no
// one else ask each other about the lines of package lock/line. A guest is a process with the controllers.
package peers
