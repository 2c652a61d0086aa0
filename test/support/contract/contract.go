package contract

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
)

// DescribeBackend declares the specs of a backend. Suites call it while Ginkgo builds the
// tree of specs; newFixture runs before each spec.
func DescribeBackend(backend string, newFixture func(ctx context.Context) Fixture) bool {
	return Describe(backend, func() {
		s := &subject{}
		BeforeEach(func(ctx context.Context) { s.Fixture = newFixture(ctx) })

		Describe("life cycle", func() { describeLifeCycle(s) })
		Describe("requests", func() { describeRequests(s) })
		Describe("keys", func() { describeKeys(s) })
		Describe("contention", func() { describeContention(s) })
		Describe("waiting", func() { describeWaiting(s) })
		Describe("cancellation", func() { describeCancellation(s) })
		Describe("expiry", func() { describeExpiry(s) })
		Describe("renewal", func() { describeRenewal(s) })
		Describe("release", func() { describeRelease(s) })
		Describe("two calls at once", func() { describePairs(s) })
		Describe("fencing", func() { describeFencing(s) })
		Describe("reading", func() { describeReading(s) })
		Describe("watching", func() { describeWatching(s) })
		Describe("limited proofs", func() { describeLimitedProofs(s) })
		Describe("pages", func() { describePages(s) })
		Describe("rights", func() { describeRights(s) })
		Describe("streams", func() { describeStreams(s) })
		Describe("through the SDK", func() { describeSDK(s) })
		Describe("several locks at once", func() { describeTogether(s) })
	})
}
