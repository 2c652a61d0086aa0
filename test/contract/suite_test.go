// Package contract_test proves that the backends on an API server keep the contract of
// lock.Backend. The backend in memory runs the contract in its own package.
package contract_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

func TestContract(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Backends on an API server")
}

var (
	environment *fixture.Cluster
	admin       client.Client
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	admin = environment.Admin.Client
	environment.StartAdmission(ctx, func(manager ctrl.Manager) { fixture.LockAdmission(manager).SetupWithManager(manager) })
	startDirect(ctx)
	startServed(ctx)
})

// newNamespace returns the name of a namespace of its own for the spec.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	return environment.Namespace(ctx, "contract-")
}

// label writes to the metadata of a lock as a user who does not hold it.
func label(namespace string) func(ctx context.Context, key v1alpha1.FullKey) error {
	return func(ctx context.Context, key v1alpha1.FullKey) error {
		var held v1alpha1.Lock
		if err := admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: key.ObjectName()}, &held); err != nil {
			return err
		}
		metav1.SetMetaDataLabel(&held.ObjectMeta, "edited-at", held.ResourceVersion)
		return admin.Update(ctx, &held)
	}
}
