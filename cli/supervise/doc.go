// Package supervise runs a command for as long as a hold lasts, such as that of a lock, and makes sure that
// nothing of the command is left when the hold ends. It knows neither locks nor Kubernetes.
//
// On Unix two processes stand above the command:
//
//	front        started by the caller: terminal, job control, signals, exit status
//	└ supervisor keeps the hold, and starts and stops the command
//	  └ command  its own process group, with the terminal if the front has it
//
// The front starts the supervisor as another process of the same program ([RunFront], [Attach]). The two watch
// each other: if one is killed, the other kills the command and its descendants. While the front is stopped,
// as by ^Z, the supervisor keeps the hold. While the supervisor is stopped or late, the front
// kills all before the hold ends.
//
// If both are killed at the same instant, the guard acts, a child of the supervisor in a session of its own: it
// kills the process group of the command and, on Linux, all processes that have the mark of the run in their
// environment, and removes the folders that the supervisor has named.
//
// What counts as part of the command depends on the operating system:
//
//   - Linux: all descendants. Both processes are child subreapers, so a descendant that leaves
//     its process group or session stays theirs. The kernel kills the command itself when the supervisor dies.
//     Without a /proc of its own PID namespace, Linux is as other Unix systems.
//   - Other Unix systems: the process group of the command. A descendant that leaves the group is lost sight of.
//   - Windows: all descendants, by a job object, which the kernel ends with this process. There is no front.
package supervise
