package jobs_test

import (
	"context"
	"maps"
	"net/http"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
)

var _ = Describe("The operator of locked Jobs, whatever gets lost,", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })
	AfterEach(expectNoViolations)

	It("starts nothing twice and leaves nothing suspended when its leader dies in any phase", func(ctx context.Context) {
		connection := &link{}
		dying, heir := candidate(namespace, connection.through), candidate(namespace)
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
})
