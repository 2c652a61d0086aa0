//go:build timing

package outage_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
)

var _ = Describe("A façade whose API server is gone", Label("timing"), func() {
	It("answers at once", func(ctx context.Context) {
		url := environment.StartFacade(ctx, environment.Namespace(ctx, "gone-"))
		hold(ctx, url)
		stop()
		asked := time.Now()
		askInVain(ctx, url)
		Expect(time.Since(asked)).To(BeNumerically("<", lock.OperationTimeout))
	})
})
