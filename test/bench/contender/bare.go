// Package contender has the ways to lock that benchmarks compare, and the objects without a lock that are their floors.
package contender

// No CRD is generated from it: its own has no schema.
// +kubebuilder:skip

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/bench/measure"
)

// BareGroup is the API group of the types below, which no webhook is asked about.
const BareGroup = "bench.forrst.dev"

// BareType is a type of custom resources that have the content of a lock.
type BareType struct{ Kind, Resource string }

var (
	// Bare has no schema: any content.
	Bare = BareType{"Bare", "bares"}
	// Ruled has the schema of a Lock.
	Ruled = BareType{"RuledLock", "ruledlocks"}
	// Ruleless has it without the rules in CEL.
	Ruleless = BareType{"RulelessLock", "rulelesslocks"}
)

// bare is an object of such a type.
type bare struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec v1alpha1.LockSpec `json:"spec"`
}

// DeepCopyObject implements [runtime.Object].
func (b *bare) DeepCopyObject() runtime.Object {
	return &bare{TypeMeta: b.TypeMeta, ObjectMeta: *b.ObjectMeta.DeepCopy(), Spec: *b.Spec.DeepCopy()}
}

// bareClient is client-go's typed client for objects of such a type, as it is generated for built-in types.
type bareClient struct {
	*gentype.Client[*bare]
	kind string
}

func newBareClient(config *rest.Config, of BareType) (bareClient, error) {
	version := schema.GroupVersion{Group: BareGroup, Version: "v1"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(version.WithKind(of.Kind), &bare{})
	metav1.AddToGroupVersion(scheme, version)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &version
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return bareClient{}, err
	}
	objects := gentype.NewClient(of.Resource, client, runtime.NewParameterCodec(scheme), Namespace, func() *bare { return &bare{} })
	return bareClient{objects, of.Kind}, nil
}

// object returns an object with the name and the content of the lock that the operator would write.
func (b bareClient) object(key, owner string) *bare {
	lock := StampedLock(key, owner)
	return &bare{
		TypeMeta:   metav1.TypeMeta{APIVersion: BareGroup + "/v1", Kind: b.kind},
		ObjectMeta: metav1.ObjectMeta{Name: lock.Name}, Spec: lock.Spec,
	}
}

// bareObject creates and deletes an object: no lock that is a custom resource can do less.
type bareObject struct {
	objects bareClient
	owner   string
}

// NewBareObject returns a floor of locks on distinct keys as a contender with an identity.
func NewBareObject(name string, config *rest.Config, of BareType) (measure.Contender, error) {
	objects, err := newBareClient(config, of)
	if err != nil {
		return measure.Contender{}, err
	}
	return measure.Contender{Name: name, Resource: of.Resource, Open: func(_ context.Context, client int) (measure.Locker, error) {
		return &bareObject{objects: objects, owner: OwnerOf(client)}, nil
	}}, nil
}

// Acquire implements [measure.Locker].
func (b *bareObject) Acquire(ctx context.Context, key string) error {
	_, err := b.objects.Create(ctx, b.objects.object(key, b.owner), metav1.CreateOptions{})
	return err
}

// Release implements [measure.Locker].
func (b *bareObject) Release(ctx context.Context, key string) error {
	return b.objects.Delete(ctx, b.objects.object(key, b.owner).Name, metav1.DeleteOptions{})
}

// Close implements [measure.Locker].
func (b *bareObject) Close() {}

// bareUpdates writes one owner over the other into one object: no hand-off in one write can do less.
type bareUpdates struct {
	objects bareClient
	current *bare
	grants  int
}

// NewBareUpdates returns a floor of hand-offs as a contender, which has one client.
func NewBareUpdates(name string, config *rest.Config, of BareType) (measure.Contender, error) {
	objects, err := newBareClient(config, of)
	if err != nil {
		return measure.Contender{}, err
	}
	return measure.Contender{Name: name, Resource: of.Resource, Clients: 1, Open: func(context.Context, int) (measure.Locker, error) {
		return &bareUpdates{objects: objects}, nil
	}}, nil
}

// Acquire implements [measure.Locker].
func (b *bareUpdates) Acquire(ctx context.Context, key string) error {
	b.grants++
	next := b.objects.object(key+"-loop", OwnerOf(b.grants%2))
	var err error
	if b.current == nil {
		b.current, err = b.objects.Create(ctx, next, metav1.CreateOptions{})
		return err
	}
	next.UID, next.ResourceVersion = b.current.UID, b.current.ResourceVersion
	b.current, err = b.objects.Update(ctx, next, metav1.UpdateOptions{})
	return err
}

// Release implements [measure.Locker].
func (b *bareUpdates) Release(context.Context, string) error { return nil }

// Close implements [measure.Locker].
func (b *bareUpdates) Close() {
	if b.current != nil {
		_ = b.objects.Delete(context.Background(), b.current.Name, metav1.DeleteOptions{}) // the cluster ends soon
	}
}
