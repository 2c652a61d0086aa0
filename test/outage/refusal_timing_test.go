//go:build timing

package outage_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A refusal by the API server", Label("timing"), func() {
	It("is told at once, also to a caller that would wait", func(ctx context.Context) {
		served := &refusing{namespace: environment.Namespace(ctx, "refused-")}
		backend := served.serve(ctx, environment.Operator().Config)
		served.terminate(ctx, backend)
		began := time.Now()
		served.expectRefusals(ctx, backend, "unable to create new content in namespace "+served.namespace)
		Expect(time.Since(began)).To(BeNumerically("<", 2*time.Second))
	})
})
