// Package install_test shows that a real API server takes the manifests of config/.
package install_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/testenv"
)

func TestInstall(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Installation")
}

var (
	environment *testenv.Environment
	admin       *testenv.Kubectl
)

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	environment, err = testenv.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return environment.Stop() })
	_, admin, err = environment.User("admin", "system:masters")
	Expect(err).NotTo(HaveOccurred())
})
