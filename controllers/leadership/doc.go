// Package leadership elects the replica that runs the controllers, and makes the
// controllers look at every object when their replica becomes the leader.
package leadership
