package jobs_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/kubelet"
)

var _ = Describe("The operator of locked Jobs under faults", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })
	AfterEach(expectNoViolations)

	It("starts nothing twice and leaves nothing suspended when its leader dies in any phase", func(ctx context.Context) {
		connection := &link{}
		dying, heir := environment.MortalCandidate(namespace, connection.through), environment.Candidate(namespace)
		startReplica(ctx, dying, connection.through)
		Eventually(dying.IsLeader).Should(BeTrue())
		startReplica(ctx, heir)

		// The leader gets as far as this with each key, and no further.
		until := map[string]<-chan struct{}{}
		freeze := func(key string, matches func(namespace, name string) func(*http.Request) bool, isCarriedOut bool) {
			until[key] = connection.freeze(matches(namespace, key), isCarriedOut, isAbout(namespace, key))
		}
		freeze("ungranted", isGrantOf, false)
		freeze("granted", isGrantOf, true)
		freeze("unstarted", isStartOf, false)
		freeze("started", isStartOf, true)
		freeze("unreleased", isReleaseOf, false)
		freeze("released", isReleaseOf, true)
		keys := []string{"running"}
		for key := range until {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		first, second := map[string]*batchv1.Job{}, map[string]*batchv1.Job{}
		for _, key := range keys {
			first[key], second[key] = createTwo(ctx, namespace, key)
		}
		finishAll(ctx, first["unreleased"], first["released"])
		for _, key := range keys {
			if key != "running" {
				Eventually(until[key]).Should(BeClosed(), key)
			}
		}
		Eventually(isRunning(ctx, first["running"])).Should(BeTrue())
		connection.cut()
		Eventually(heir.IsLeader).Should(BeTrue())

		var unfinished []*batchv1.Job
		for _, key := range keys {
			if key != "unreleased" && key != "released" {
				unfinished = append(unfinished, first[key])
			}
		}
		finishAll(ctx, unfinished...)
		finishAll(ctx, slices.Collect(maps.Values(second))...)
		for _, key := range keys {
			Expect(startsOfKey(namespace, key)).To(Equal([]string{first[key].Name, second[key].Name}), key)
		}
		for _, key := range keys {
			Eventually(lockOf).WithArguments(ctx, namespace, key).Should(BeNil(), key)
		}
	})

	It("starts nothing twice and leaves nothing suspended when answers are lost", func(ctx context.Context) {
		connection := &link{}
		startOperator(ctx, connection.through)
		lost := map[string]<-chan struct{}{
			"granted":  connection.lose(isGrantOf(namespace, "granted")),
			"started":  connection.lose(isStartOf(namespace, "started")),
			"released": connection.lose(isReleaseOf(namespace, "released")),
		}
		first, second := map[string]*batchv1.Job{}, map[string]*batchv1.Job{}
		for key := range lost {
			first[key], second[key] = createTwo(ctx, namespace, key)
		}
		finishAll(ctx, slices.Collect(maps.Values(first))...)
		finishAll(ctx, slices.Collect(maps.Values(second))...)
		for key, met := range lost {
			Expect(met).To(BeClosed(), key)
			Expect(startsOfKey(namespace, key)).To(Equal([]string{first[key].Name, second[key].Name}), key)
			Eventually(lockOf).WithArguments(ctx, namespace, key).Should(BeNil(), key)
		}
	})

	It("stops a Job that a process frozen for longer than the ttl started late", func(ctx context.Context) {
		connection := &link{}
		frozen := startOperator(ctx, connection.through)
		isHeld, send := connection.hold(isStartOf(namespace, "late"))
		// For a moment, its pods may run beside those of the other Job.
		late := create(ctx, makeJob(namespace, "late", "key", annotated(v1alpha1.LockTTLAnnotation, "5s"), podAnnotated(kubelet.Key, namespace+"/late")))
		Eventually(isHeld).Should(BeClosed())
		held := lockOf(ctx, namespace, "key")
		other := create(ctx, makeJob(namespace, "other", "key", annotated(v1alpha1.LockPriorityAnnotation, "1")))
		Eventually(time.Now).Should(BeTemporally(">", held.Spec.ExpireTime.Time))
		startOperator(ctx)
		Eventually(isRunning(ctx, other)).Should(BeTrue())

		// A change of the Job meanwhile has the API server refuse it.
		if err := send(); err == nil {
			Eventually(eventsOf(ctx, late)).Should(ContainSubstring("Warning LockLost"))
		} else {
			Expect(err).To(MatchError(ContainSubstring("409")))
		}
		frozen.Stop()
		Expect(read(ctx, late).Spec.Suspend).To(HaveValue(BeTrue()))
		Expect(holderOf(ctx, namespace, "key")()).To(Equal(other.UID))
		finish(ctx, other)
		finish(ctx, late)
		tokens := tokensOfKey(namespace, "late")
		Expect(tokens[len(tokens)-1]).To(BeNumerically(">", tokensOfKey(namespace, "key")[0]))
		token, err := held.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		Expect(tokensOfKey(namespace, "key")[0]).To(BeNumerically(">", token))
	})
})
