package contender

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// Namespace is the namespace of the façade and of every lock of the benchmarks.
const Namespace = "default"

// TTL is the ttl of every lock: longer than any run.
const TTL = 30 * time.Minute

// LockObjects is client-go's typed client for Lock objects, as it is generated for
// built-in types.
type LockObjects struct {
	*gentype.ClientWithList[*v1alpha1.Lock, *v1alpha1.LockList]
}

// NewLockObjects returns a client with client-go's defaults. It shares no code with the
// product on purpose: a floor that changes with the product is no floor.
func NewLockObjects(config *rest.Config) (LockObjects, error) {
	return NewLockObjectsIn(config, Namespace)
}

// NewLockObjectsIn returns such a client for another namespace.
func NewLockObjectsIn(config *rest.Config, namespace string) (LockObjects, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return LockObjects{}, err
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &v1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return LockObjects{}, err
	}
	return LockObjects{gentype.NewClientWithList("locks", client, runtime.NewParameterCodec(scheme), namespace,
		func() *v1alpha1.Lock { return &v1alpha1.Lock{} }, func() *v1alpha1.LockList { return &v1alpha1.LockList{} })}, nil
}

// All returns all locks.
func (o LockObjects) All(ctx context.Context) ([]v1alpha1.Lock, error) {
	list, err := o.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// StampedLock returns an object as the operator writes it, without the webhook.
func StampedLock(key, owner string) *v1alpha1.Lock {
	return rules.Grant(Namespace, rules.Acquisition{Key: key, Owner: owner, TTL: TTL, Holder: "bench"},
		rules.DefaultLimits(), time.Now().Truncate(time.Microsecond))
}

// DeclaredLock returns an object as users write it, which the webhook completes.
func DeclaredLock(key, owner string) *v1alpha1.Lock {
	stamped := StampedLock(key, owner)
	declared := stamped.DeepCopy()
	declared.Spec = v1alpha1.LockSpec{
		Key: stamped.Spec.Key, Scope: stamped.Spec.Scope, Owner: stamped.Spec.Owner, TTL: stamped.Spec.TTL,
	}
	return declared
}

// OwnerOf returns the owner token of a client.
func OwnerOf(client int) string { return fmt.Sprintf("550e8400-e29b-41d4-a716-%012d", client) }
