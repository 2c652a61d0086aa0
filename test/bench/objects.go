package main

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

// ttl is the ttl of every lock: longer than any run.
const ttl = 30 * time.Minute

// lockObjects is client-go's typed client for Lock objects, as it is generated for
// built-in types.
type lockObjects struct {
	*gentype.ClientWithList[*v1alpha1.Lock, *v1alpha1.LockList]
}

// newLockObjects returns a client with client-go's defaults. It shares no code with the
// product on purpose: a floor that changes with the product is no floor.
func newLockObjects(config *rest.Config) (lockObjects, error) {
	return newLockObjectsIn(config, namespace)
}

func newLockObjectsIn(config *rest.Config, namespace string) (lockObjects, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return lockObjects{}, err
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &v1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return lockObjects{}, err
	}
	return lockObjects{gentype.NewClientWithList("locks", client, runtime.NewParameterCodec(scheme), namespace,
		func() *v1alpha1.Lock { return &v1alpha1.Lock{} }, func() *v1alpha1.LockList { return &v1alpha1.LockList{} })}, nil
}

// list returns all locks.
func (o lockObjects) list(ctx context.Context) ([]v1alpha1.Lock, error) {
	list, err := o.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// stampedLock returns an object as the operator writes it, without the webhook.
func stampedLock(key, owner string) *v1alpha1.Lock {
	return rules.Grant(namespace, rules.Acquisition{Key: key, Owner: owner, TTL: ttl, Holder: "bench"},
		rules.DefaultLimits(), time.Now().Truncate(time.Microsecond))
}

// declaredLock returns an object as users write it, which the webhook completes.
func declaredLock(key, owner string) *v1alpha1.Lock {
	stamped := stampedLock(key, owner)
	declared := stamped.DeepCopy()
	declared.Spec = v1alpha1.LockSpec{
		Key: stamped.Spec.Key, Scope: stamped.Spec.Scope, Owner: stamped.Spec.Owner, TTL: stamped.Spec.TTL,
	}
	return declared
}

func ownerOf(client int) string { return fmt.Sprintf("550e8400-e29b-41d4-a716-%012d", client) }
