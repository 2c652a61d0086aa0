package upgrade_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/fixture"
)

func TestUpgrade(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Upgrade")
}

var (
	environment *fixture.Cluster
	// earlier is what is upgraded, current is this tree.
	earlier, current *release
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	earlier, current = earlierRelease(ctx), currentRelease(ctx)
})
