// Package locktest keeps locks in memory, for tests of programs that use package lock.
//
// A [Backend] decides by the same rules as the operator and behaves like it: fencing tokens grow,
// waiters are served first in, first out, locks expire. The differences:
//
//   - Any namespace exists, and all callers may do everything, unless a hook fails their calls with [lock.ErrForbidden].
//   - Expired locks are not deleted. An expired lock can be taken over, is not returned by
//     [Backend.Get] or [Backend.List], and watches and [Backend.All] still show it.
//   - All callers share one clock and wait in one queue per lock. The order of the calls and
//     the steps of the clock therefore determine what happens.
//
// With a clock that is stepped by hand (k8s.io/utils/clock/testing), a lock expires in the step
// that reaches its expireTime, and the first waiter holds it from then on. [Backend.Waiting]
// returns how many waiters have arrived. [Backend.Expire], [Backend.SetUnavailable] and
// [Backend.ForceRelease] cause the faults that programs with locks must handle.
//
// [Hooks] run before and after each call: they delay it, fail it, or lose its answer. [WithRecord]
// makes the Backend record its calls.
//
// A Backend has no goroutines of its own and need not be closed.
package locktest
