// Package line_test proves that those who wait for a lock at any replica of the façade stand in one line, with
// processes of the operator on a real API server.
package line_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/fixture"
)

func TestLine(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Line")
}

var environment *fixture.Cluster

var _ = BeforeSuite(func(ctx context.Context) { environment = fixture.Start(ctx) })
