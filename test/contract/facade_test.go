package contract_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/contract"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// facadeCaller is whom the façades take their callers for.
const facadeCaller = "system:serviceaccount:payments:worker"

const allowed = fixture.SingleUser(facadeCaller)

// noRights knows its caller and allows nothing.
type noRights struct{ fixture.SingleUser }

// Authorize implements the access of a façade.
func (noRights) Authorize(_ context.Context, who user.Info, right authorizationv1.ResourceAttributes) error {
	return fmt.Errorf("%w: %s lacks %s on %s", lock.ErrForbidden, who.GetName(), right.Verb, right.Resource)
}

// maxBlock lets a caller wait in one call for as long as a spec may ask for.
const maxBlock = 2 * time.Hour

var served, servedRival replica

func startServed(ctx context.Context) {
	GinkgoHelper()
	served = startReplica(ctx, environment.Operator().Config, false)
	servedRival = startReplica(ctx, environment.Operator().Config, false)
}

var _ = contract.DescribeBackend("A façade over HTTP", func(ctx context.Context) contract.Fixture {
	namespace := newNamespace(ctx)
	before := served.waits.count()
	return contract.Fixture{
		Backend: serve(served, namespace, allowed), Rival: serve(servedRival, namespace, allowed),
		Forbidden: serve(served, namespace, noRights{allowed}),
		Namespace: namespace,
		Holder:    facadeCaller,
		Queued:    func(v1alpha1.FullKey) int { return served.waits.count() - before },
		Label:     label(namespace),
	}
})

// serve returns a client of a façade for the locks of a namespace.
func serve(engine replica, namespace string, access access.Access) lock.Backend {
	GinkgoHelper()
	handler, err := testfacade.New(testfacade.Settings{
		Locks: engine, Access: access, MaxBlock: maxBlock,
	})
	Expect(err).NotTo(HaveOccurred())
	server := httptest.NewServer(handler)
	DeferCleanup(server.Close)
	asking, err := client.New(server.URL, client.WithMaxBlock(maxBlock), client.WithNamespace(namespace), client.WithWatch())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(asking.Close)
	return asking
}
