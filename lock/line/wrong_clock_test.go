package line_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/servertime"
	"forrst.dev/lock-operator/test/support/machine"
)

// machineClock is the clock of the machine of a replica. Its timers are right.
type machineClock struct {
	clock.RealClock
	began time.Time
	// ahead is by how much both parts of its readings are wrong, and stepped by how much more the wall clock alone is.
	ahead, stepped atomic.Int64
}

// monotonic has a monotonic part, which readings inside a bubble of synctest have not.
var monotonic = time.Now()

func newMachineClock() *machineClock { return &machineClock{began: time.Now()} }

// Now implements [clock.PassiveClock].
func (c *machineClock) Now() time.Time {
	reading := monotonic.Add(time.Since(c.began) + time.Duration(c.ahead.Load()))
	return machine.MonotonicBehind(reading, c.began.Sub(monotonic.Round(0))+time.Duration(c.stepped.Load()))
}

// Since implements [clock.PassiveClock].
func (c *machineClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// dated are requests whose answers tell a clock the time of the API server.
type dated struct {
	engine.Objects
	clock *servertime.Clock
}

// answers tells the clock of the answer to a request, if there was one.
func (d dated) answers(request func() error) {
	sent := d.clock.Local().Now()
	err := request()
	if err != nil && (apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || errors.Is(err, errUnanswered)) {
		return
	}
	d.clock.Observe(sent, d.clock.Local().Now(), time.Now().Truncate(time.Second))
}

// Create implements [engine.Objects].
func (d dated) Create(ctx context.Context, object *v1alpha1.Lock, options metav1.CreateOptions) (stored *v1alpha1.Lock, err error) {
	d.answers(func() error {
		stored, err = d.Objects.Create(ctx, object, options)
		return err
	})
	return stored, err
}

// Update implements [engine.Objects].
func (d dated) Update(ctx context.Context, object *v1alpha1.Lock, options metav1.UpdateOptions) (stored *v1alpha1.Lock, err error) {
	d.answers(func() error {
		stored, err = d.Objects.Update(ctx, object, options)
		return err
	})
	return stored, err
}

// Delete implements [engine.Objects].
func (d dated) Delete(ctx context.Context, name string, options metav1.DeleteOptions) (err error) {
	d.answers(func() error {
		err = d.Objects.Delete(ctx, name, options)
		return err
	})
	return err
}

// Get implements [engine.Objects].
func (d dated) Get(ctx context.Context, name string, options metav1.GetOptions) (stored *v1alpha1.Lock, err error) {
	d.answers(func() error {
		stored, err = d.Objects.Get(ctx, name, options)
		return err
	})
	return stored, err
}

// List implements [engine.Objects].
func (d dated) List(ctx context.Context, options metav1.ListOptions) (found *v1alpha1.LockList, err error) {
	d.answers(func() error {
		found, err = d.Objects.List(ctx, options)
		return err
	})
	return found, err
}
