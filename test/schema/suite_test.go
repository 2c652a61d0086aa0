// Package schema_test proves what the schema of the Lock enforces by itself, without the
// webhook.
package schema_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

func TestSchema(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Schema of the Lock")
}

var (
	environment *fixture.Cluster
	kubernetes  client.Client
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	kubernetes = environment.Admin.Client
})

// stamped returns a lock as the operator writes it.
func stamped(key string) *v1alpha1.Lock {
	now := v1alpha1.NewTimestamp(time.Now())
	expire := v1alpha1.NewTimestamp(now.Add(time.Minute))
	return &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: v1alpha1.FullKeyOf(key).ObjectName()},
		Spec: v1alpha1.LockSpec{
			Key: key, Scope: v1alpha1.ScopeGlobal, Owner: "token-a", Holder: "alice", TTL: &v1alpha1.Duration{Duration: time.Minute},
			AcquireTime: &now, RenewTime: &now, ExpireTime: &expire,
		},
	}
}
