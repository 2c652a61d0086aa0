//go:build timing

package outage_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

var _ = Describe("A façade whose API server is gone", Label("timing"), func() {
	It("answers at once", func(ctx context.Context) {
		environment := fixture.Start(ctx)
		url := environment.StartFacade(ctx, "default")
		hold(ctx, url)
		Expect(environment.APIServer().Stop()).To(Succeed())
		asked := time.Now()
		askInVain(ctx, url)
		Expect(time.Since(asked)).To(BeNumerically("<", lock.OperationTimeout))
	})
})
