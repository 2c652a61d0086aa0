// Package locktest keeps locks in memory, for tests of programs that use package lock.
//
// A [Backend] decides by the same rules as the operator and behaves like it: grants
// have fencing tokens that grow, callers that wait are served first in, first out,
// locks expire. It differs in this:
//
//   - Any namespace exists, and all callers may do everything.
//   - Nothing reaps an expired lock. It can be taken over, is not returned by
//     [Backend.Get] or [Backend.List], and watches go on showing it.
//   - All callers share one clock and wait in one queue per lock. What happens is
//     therefore determined by the order of the calls and by the steps of the clock.
//
// With a clock that is stepped by hand (k8s.io/utils/clock/testing), a lock expires in
// the step that reaches its end, and the first waiter has it from then on, whatever the
// test does next. [Backend.Waiting] tells when waiters have arrived. [Backend.Expire] and
// [Backend.SetUnavailable] bring about what programs that hold locks have to cope with,
// and [Backend.ForceRelease] is a fault, too.
//
// [Hooks] run before and after each call: they delay it, fail it, or lose its answer.
// [WithRecord] has the Backend record what it was asked for.
//
// A Backend has no goroutines of its own and need not be closed.
package locktest
