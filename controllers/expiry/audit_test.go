package expiry_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/expiry"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
)

var _ = Describe("The audit of a reaper", func() {
	var records *audittest.Recorder
	var reaper *expiry.Reconciler
	var deletes *failingDeletes

	reconcile := func(ctx context.Context, lock *v1alpha1.Lock) error {
		_, err := reaper.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(lock)})
		return err
	}
	// lapsed stores a lock and has the reaper's clock show a time long after its end.
	lapsed := func(ctx context.Context, key string) *v1alpha1.Lock {
		GinkgoHelper()
		lock := held(ctx, key, time.Minute)
		reaper.Clock = clocktesting.NewFakePassiveClock(lock.Spec.ExpireTime.Add(time.Hour))
		return lock
	}

	BeforeEach(func() {
		records, deletes = &audittest.Recorder{}, &failingDeletes{Client: admin}
		reaper = &expiry.Reconciler{Client: deletes, Leadership: leadership.Always(), Audit: records}
	})

	It("has one record of a lock that expired, which was held until it did", func(ctx context.Context) {
		lock := lapsed(ctx, "audited")
		token, err := lock.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		Expect(reconcile(ctx, lock)).To(Succeed())
		Expect(reconcile(ctx, lock)).To(Succeed())
		Expect(records.All()).To(ConsistOf(And(
			HaveField("Event", audit.Expired), HaveField("Reason", audit.Reaped), HaveField("Via", audit.Controller),
			HaveField("Actor", ""), HaveField("Holder", "alice"), HaveField("FencingToken", token),
			HaveField("HeldSeconds", HaveValue(BeNumerically("==", 60))), HaveField("Unconfirmed", false),
		)))
	})

	It("has none of a lock that another client has deleted", func(ctx context.Context) {
		lock := lapsed(ctx, "audited-gone")
		deletes.before = func() error { return admin.Delete(ctx, lock.DeepCopy()) }
		Expect(reconcile(ctx, lock)).To(Succeed())
		Expect(reconcile(ctx, lock)).To(Succeed())
		Expect(records.All()).To(BeEmpty())
	})

	It("has an unconfirmed one if the answer was lost", func(ctx context.Context) {
		lock := lapsed(ctx, "audited-lost")
		deletes.after = func() error { return errors.New("EOF") }
		Expect(reconcile(ctx, lock)).NotTo(Succeed())
		Expect(records.All()).To(BeEmpty())
		Expect(reconcile(ctx, lock)).To(Succeed())
		Expect(reconcile(ctx, lock)).To(Succeed())
		Expect(records.All()).To(ConsistOf(And(HaveField("Event", audit.Expired), HaveField("Unconfirmed", true))))
	})

	It("has one if the first delete was lost on its way", func(ctx context.Context) {
		lock := lapsed(ctx, "audited-twice")
		deletes.before = func() error { return errors.New("EOF") }
		Expect(reconcile(ctx, lock)).NotTo(Succeed())
		deletes.before = nil
		Expect(reconcile(ctx, lock)).To(Succeed())
		Expect(reconcile(ctx, lock)).To(Succeed())
		Expect(records.All()).To(ConsistOf(And(HaveField("Event", audit.Expired), HaveField("Unconfirmed", false))))
	})

	It("has none if the delete was refused, even if another client then deletes the lock", func(ctx context.Context) {
		lock := lapsed(ctx, "audited-refused")
		deletes.before = func() error { return apierrors.NewForbidden(v1alpha1.Resource("locks"), lock.Name, errors.New("no")) }
		Expect(reconcile(ctx, lock)).NotTo(Succeed())
		Expect(admin.Delete(ctx, lock.DeepCopy())).To(Succeed())
		Expect(reconcile(ctx, lock)).To(Succeed())
		Expect(records.All()).To(BeEmpty())
	})
})

// failingDeletes fails before or after a delete happens.
type failingDeletes struct {
	client.Client
	before, after func() error
}

func (f *failingDeletes) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if f.before != nil {
		if err := f.before(); err != nil {
			return err
		}
	}
	if err := f.Client.Delete(ctx, object, options...); err != nil || f.after == nil {
		return err
	}
	return f.after()
}
