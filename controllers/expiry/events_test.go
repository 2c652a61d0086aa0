package expiry_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/rules"
)

// eventsOn returns the reasons and notes of the Events on a lock.
func eventsOn(lock *v1alpha1.Lock) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		var found eventsv1.EventList
		err := admin.List(ctx, &found, client.InNamespace(lock.Namespace))
		var notes []string
		for _, event := range found.Items {
			if event.Regarding.UID == lock.UID && event.Regarding.Kind == "Lock" {
				notes = append(notes, event.Reason+": "+event.Note)
			}
		}
		return notes, err
	}
}

var _ = Describe("The Events of a lock that expires", func() {
	It("say who has taken it over, and nothing of renewals and hand-offs", func(ctx context.Context) {
		startReaper(ctx, time.Hour, nil)
		lock := held(ctx, "taken-over-event", time.Minute)
		renewed, err := rules.Renew(lock, rules.Proof{Owner: "token-a"}, 0, time.Now())
		Expect(err).NotTo(HaveOccurred())
		Expect(admin.Update(ctx, renewed)).To(Succeed())
		next := rules.Acquisition{Key: "taken-over-event", Owner: "token-b", Holder: "bob", TTL: time.Second}
		handedOff := rules.HandOff(renewed, next, rules.DefaultLimits(), time.Now())
		Expect(admin.Update(ctx, handedOff)).To(Succeed())
		var takenOver *v1alpha1.Lock
		next.Owner, next.Holder, next.TTL = "token-c", "carol", time.Minute
		Eventually(func() error {
			takenOver, err = rules.TakeOver(handedOff, next, rules.DefaultLimits(), time.Now(), 0)
			return err
		}).Should(Succeed())
		Expect(admin.Update(ctx, takenOver)).To(Succeed())
		Eventually(eventsOn(lock)).WithContext(ctx).Should(ConsistOf(
			And(HavePrefix(lockevents.ReasonTakenOver+`: lock:taken-over-event, held by "bob", expired at `), ContainSubstring(`taken over by "carol"`))))
	})

	It("come from the leader alone", func(ctx context.Context) {
		election := candidate()
		startReaper(ctx, time.Hour, election)
		Eventually(election.IsLeader).Should(BeTrue())
		startReaper(ctx, time.Hour, candidate())
		lock := held(ctx, "one-event", time.Second)
		var takenOver *v1alpha1.Lock
		Eventually(func() (err error) {
			takenOver, err = rules.TakeOver(lock, rules.Acquisition{Key: "one-event", Owner: "token-c", Holder: "carol", TTL: time.Minute}, rules.DefaultLimits(), time.Now(), 0)
			return err
		}).Should(Succeed())
		Expect(admin.Update(ctx, takenOver)).To(Succeed())
		Eventually(eventsOn(lock)).WithContext(ctx).Should(HaveLen(1))
		Consistently(eventsOn(lock)).WithContext(ctx).WithTimeout(time.Second).Should(HaveLen(1))
	})
})
