package contract_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/contract"
	"forrst.dev/lock-operator/test/support/testenv"
)

// directUser is subject to RBAC and to admission, as every program is that asks the API
// server itself.
const directUser = "alice"

// forbiddenUser has no role.
const forbiddenUser = "mallory"

var direct, directRival, directForbidden replica

func startDirect(ctx context.Context) {
	GinkgoHelper()
	direct = startReplica(ctx, environment.Identity(directUser, testenv.TestersGroup).Config, true)
	directRival = startReplica(ctx, environment.Identity(directUser, testenv.TestersGroup).Config, true)
	directForbidden = startReplica(ctx, environment.Identity(forbiddenUser).Config, true)
}

var _ = contract.DescribeBackend("An engine with the identity of a user", func(ctx context.Context) contract.Fixture {
	namespace := newNamespace(ctx)
	before := direct.waits.count()
	return contract.Fixture{
		Backend: direct, Rival: directRival, Forbidden: directForbidden,
		Namespace: namespace, Elsewhere: newNamespace(ctx),
		Holder: directUser,
		Queued: func(v1alpha1.FullKey) int { return direct.waits.count() - before },
		Label:  label(namespace),
	}
})
