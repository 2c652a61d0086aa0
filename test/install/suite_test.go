// Package install_test proves that a real API server accepts the manifests of config/, and
// that they grant the rights and open the ports that the documentation names.
package install_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

func TestInstall(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Installation")
}

var (
	environment *fixture.Cluster
	admin       *testenv.Kubectl
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	admin = environment.Admin.Kubectl
})
