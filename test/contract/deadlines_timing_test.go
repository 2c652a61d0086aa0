//go:build timing

package contract_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
)

const (
	// timed is the deadline of each call, and late how long after it the call may return.
	timed = 1500 * time.Millisecond
	late  = 100 * time.Millisecond
)

var _ = Describe("The deadline of a caller", Label("timing"), func() {
	for name := range workingBackends {
		for call := range outageCalls {
			It("is kept by "+name+" when the service has gone away: "+call, func(ctx context.Context) {
				took, err := callAfterOutage(ctx, name, call, timed)
				Expect(err).To(MatchError(lock.ErrUnavailable))
				Expect(took).To(BeNumerically("<", timed+late))
			})
		}

		It("ends a wait on "+name+" when the service goes away", func(ctx context.Context) {
			took, err := waitIntoOutage(ctx, name, 2*timed)
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(took).To(BeNumerically("<", 2*timed+late))
		})
	}

	for _, name := range []string{"a direct engine", "a client of a façade"} {
		It("is kept by "+name+" while the service answers nothing", func(ctx context.Context) {
			// A forced release completes the write that it has begun.
			for call, made := range callUnreachable(ctx, name, freeze(), timed, "ForceRelease") {
				Expect(made.took).To(BeNumerically("<", timed+late), call)
			}
		})
	}

	for reason, urlOf := range unreachable {
		for name := range unreachableBackends {
			It("is kept by "+name+" if "+reason, func(ctx context.Context) {
				for call, made := range callUnreachable(ctx, name, urlOf(), timed, "") {
					Expect(made.took).To(BeNumerically("<", timed+late), call)
				}
			})
		}
	}

	DescribeTable("ends a wait for a lock that is held", func(ctx context.Context, backend func(namespace string) lock.Backend) {
		const quiet = 200 * time.Millisecond
		namespace := newNamespace(ctx)
		asking := backend(namespace)
		request := lock.Request{Acquisition: rules.Acquisition{Key: "report", TTL: time.Minute}}
		_, err := asking.Acquire(ctx, namespace, request)
		Expect(err).NotTo(HaveOccurred())
		limited, cancel := context.WithTimeout(ctx, quiet)
		defer cancel()
		request.Wait = lock.WaitForever
		began := time.Now()
		_, err = asking.Acquire(limited, namespace, request)
		Expect(time.Since(began)).To(BeNumerically("<", quiet+late))
		Expect(err).To(MatchError(context.DeadlineExceeded))
	},
		Entry("at an engine of its own", func(string) lock.Backend { return direct }),
		Entry("at a façade", func(namespace string) lock.Backend { return serve(served, namespace, allowed) }),
		Entry("in the line of a façade", func(namespace string) lock.Backend {
			return inLine(direct, served, namespace, fixture.SingleUser(directUser))
		}),
	)
})
