// Package supervise runs a command for as long as a hold lasts, such as that of a lock. It knows neither locks
// nor Kubernetes.
//
// On Unix the command is the leader of a process group of its own, and what this package ends and waits for is that group.
// A descendant that leaves it, as by setsid, is lost sight of. A watcher, another process of the same program in a session of
// its own, reads a pipe that tells it by when this process will have ended the group. It kills the group when that time has
// passed, because this process is stopped or late, and when the pipe is closed, because this process was killed. If the
// watcher ends first, this process kills the group. If both are killed at the same instant, Linux kills the command itself.
//
// On Windows a job object takes the place of group and watcher: the kernel ends it with this process, and no process leaves it.
package supervise
