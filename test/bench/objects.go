package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// namespace is that of the façade and of every lock of the benchmarks.
	namespace = "default"
	// lockTTL is the ttl of a lock that is released: longer than any scenario holds it.
	lockTTL = 30 * time.Minute
	// leasePoll is the average interval in which a waiting client reads a Lease.
	leasePoll = time.Second
	locks     = "locks"
)

// objectType is a type of custom resources with the content of a lock.
type objectType struct {
	schema.GroupVersion

	kind, resource string
}

var (
	lockType = objectType{v1alpha1.GroupVersion, "Lock", locks}
	// bareType has no schema, and no webhook is asked about it.
	bareType = objectType{schema.GroupVersion{Group: "bench.forrst.dev", Version: "v1"}, "Bare", "bares"}
)

// newObjects returns a client for a type as it is generated for built-in types, with client-go's defaults. It shares no code
// with the product on purpose: a floor that changes with the product is no floor.
func newObjects(config *rest.Config, of objectType, namespace string) *gentype.Client[*v1alpha1.Lock] {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(of.WithKind(of.kind), &v1alpha1.Lock{})
	metav1.AddToGroupVersion(scheme, of.GroupVersion)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &of.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client := must(rest.RESTClientFor(config))
	return gentype.NewClient(of.resource, client, runtime.NewParameterCodec(scheme), namespace, func() *v1alpha1.Lock { return &v1alpha1.Lock{} })
}

// stampedLock returns a lock as the operator writes it, without the webhook.
func stampedLock(key, owner string) *v1alpha1.Lock {
	return rules.Grant(namespace, rules.Acquisition{Key: key, Owner: owner, TTL: lockTTL, Holder: "bench"},
		rules.DefaultLimits(), time.Now().Truncate(time.Microsecond))
}

// declaredLock returns a lock as users write it, which the webhook completes.
func declaredLock(key, owner string) *v1alpha1.Lock {
	declared := stampedLock(key, owner)
	stamped := declared.Spec
	declared.Spec = v1alpha1.LockSpec{Key: stamped.Key, Scope: stamped.Scope, Owner: stamped.Owner, TTL: stamped.TTL}
	return declared
}

// ownerOf returns the owner token of a client.
func ownerOf(client int) string { return fmt.Sprintf("550e8400-e29b-41d4-a716-%012d", client) }

// createAndDelete creates and deletes objects with an identity: no lock that is a custom resource can do less.
func createAndDelete(name string, config *rest.Config, of objectType, object func(key, owner string) *v1alpha1.Lock) contender {
	objects := newObjects(config, of, namespace)
	return contender{name: name, resource: of.resource, open: func(_ context.Context, number int) client {
		return client{
			acquire: func(ctx context.Context, key string) error {
				_, err := objects.Create(ctx, object(key, ownerOf(number)), metav1.CreateOptions{})
				return err
			},
			release: func(ctx context.Context, key string) error {
				return objects.Delete(ctx, v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", key).ObjectName(), metav1.DeleteOptions{})
			},
		}
	}}
}

// updateLoop has one client, which writes one grant over the other into one object: no hand-off in one write can do less.
func updateLoop(name string, config *rest.Config, of objectType) contender {
	objects := newObjects(config, of, namespace)
	return contender{name: name, resource: of.resource, clients: 1, open: func(context.Context, int) client {
		var current *v1alpha1.Lock
		grants := 0
		return client{
			acquire: func(ctx context.Context, key string) (err error) {
				grants++
				next := stampedLock(key+"-loop", ownerOf(grants%2))
				if current == nil {
					current, err = objects.Create(ctx, next, metav1.CreateOptions{})
					return err
				}
				next.UID, next.ResourceVersion = current.UID, current.ResourceVersion
				current, err = objects.Update(ctx, next, metav1.UpdateOptions{})
				return err
			},
			close: func() {
				if current != nil {
					_ = objects.Delete(context.Background(), current.Name, metav1.DeleteOptions{}) // the cluster ends soon
				}
			},
		}
	}}
}

// configMapUpdates updates ConfigMaps of a namespace, each client its own.
func configMapUpdates(name string, clientset kubernetes.Interface, namespace string) contender {
	maps := clientset.CoreV1().ConfigMaps(namespace)
	return contender{name: name, resource: "configmaps", open: func(ctx context.Context, number int) client {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("written-%d", number)}, Data: map[string]string{}}
		current := must(maps.Create(ctx, object, metav1.CreateOptions{}))
		writes := 0
		return client{acquire: func(ctx context.Context, _ string) (err error) {
			writes++
			current.Data = map[string]string{"writes": fmt.Sprint(writes)}
			current, err = maps.Update(ctx, current, metav1.UpdateOptions{})
			return err
		}}
	}}
}

func leaseOf(owner, name string) *coordinationv1.Lease {
	now := metav1.NowMicro()
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &owner, LeaseDurationSeconds: new(int32(lockTTL.Seconds())), AcquireTime: &now, RenewTime: &now,
	}}
}

// bareLease creates and deletes a Lease, the built-in object of the same purpose.
func bareLease(config *rest.Config) contender {
	leases := must(kubernetes.NewForConfig(config)).CoordinationV1().Leases(namespace)
	return contender{name: "bare Lease: create + delete", resource: "leases", open: func(_ context.Context, number int) client {
		return client{
			acquire: func(ctx context.Context, key string) error {
				_, err := leases.Create(ctx, leaseOf(ownerOf(number), "bare-"+key), metav1.CreateOptions{})
				return err
			},
			release: func(ctx context.Context, key string) error {
				return leases.Delete(ctx, "bare-"+key, metav1.DeleteOptions{})
			},
		}
	}}
}

// polledLease locks as programs on Kubernetes commonly do: read a Lease, create or update it if it is free, or else read it
// again after a second. A client that yields waits for one poll after a release: otherwise it would always take the lock again
// before another client reads the Lease.
func polledLease(config *rest.Config, yields bool) contender {
	leases := must(kubernetes.NewForConfig(config)).CoordinationV1().Leases(namespace)
	return contender{name: "Lease, 1 s poll", resource: "leases", open: func(_ context.Context, number int) client {
		var held *coordinationv1.Lease
		// Clients that once read at the same moment would do so forever, if their polls were not scattered.
		nextPoll := func() time.Time { return time.Now().Add(leasePoll/2 + rand.N(leasePoll)) }
		next := time.Now()
		if yields {
			next = nextPoll()
		}
		return client{
			acquire: func(ctx context.Context, key string) (err error) {
				for held = nil; held == nil && err == nil; next = nextPoll() {
					if err = waitUntil(ctx, next); err == nil {
						held, err = tryLease(ctx, leases, leaseOf(ownerOf(number), key))
					}
				}
				return err
			},
			release: func(ctx context.Context, _ string) error {
				next = time.Now()
				if yields {
					next = nextPoll()
				}
				held.Spec.HolderIdentity = new("")
				_, err := leases.Update(ctx, held, metav1.UpdateOptions{})
				return err
			},
		}
	}}
}

// tryLease reads the Lease once and takes it if it is free. Otherwise it returns nil.
func tryLease(ctx context.Context, leases coordinationclient.LeaseInterface, wanted *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	current, err := leases.Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		current, err = leases.Create(ctx, wanted, metav1.CreateOptions{})
	case err != nil || current.Spec.HolderIdentity != nil && *current.Spec.HolderIdentity != "":
		return nil, err
	default:
		current.Spec = wanted.Spec
		current, err = leases.Update(ctx, current, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil, nil
	}
	return current, err
}
