//go:build nightly

package jobs_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
)

var _ = Describe("The operator's process", Label("nightly"), func() {
	It("is killed at ten moments, and still every Job runs once and alone", func(ctx context.Context) { killOperator(ctx, 10, 100, 20) })
})
