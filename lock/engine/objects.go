package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/engine/keywatch"
	"forrst.dev/lock-operator/lock/refusal"
)

// Objects are the requests that the [Engine] makes in one namespace.
type Objects interface {
	Create(ctx context.Context, lock *v1alpha1.Lock, options metav1.CreateOptions) (*v1alpha1.Lock, error)
	Update(ctx context.Context, lock *v1alpha1.Lock, options metav1.UpdateOptions) (*v1alpha1.Lock, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
	Get(ctx context.Context, name string, options metav1.GetOptions) (*v1alpha1.Lock, error)
	List(ctx context.Context, options metav1.ListOptions) (*v1alpha1.LockList, error)
}

// ObjectClient makes requests for Locks to the API server. It needs no discovery and has no cache:
// every call is exactly one request, but for a read or a delete that the API server has no room for:
// it is repeated when the API server says, if ctx permits. Safe for concurrent use.
type ObjectClient struct {
	rest  rest.Interface
	codec runtime.ParameterCodec
	clock clock.Clock
}

// NewObjectClient returns a client with the identity and address of config. It ignores the rate
// limits of config: a client-side queue would delay locks, and the API server has priority and
// fairness.
func NewObjectClient(config *rest.Config, httpClient *http.Client) (*ObjectClient, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the Lock type: %w", err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &v1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.QPS = -1
	restClient, err := rest.RESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", v1alpha1.GroupVersion, err)
	}
	return &ObjectClient{rest: once{restClient}, codec: runtime.NewParameterCodec(scheme), clock: clock.RealClock{}}, nil
}

// once stops client-go from repeating requests. A write repeated after an answer such as 503 with
// Retry-After would meet its own earlier success, and the engine would take that for another
// caller's.
type once struct{ rest.Interface }

// Post implements [rest.Interface].
func (o once) Post() *rest.Request { return o.Interface.Post().MaxRetries(0) }

// Put implements [rest.Interface].
func (o once) Put() *rest.Request { return o.Interface.Put().MaxRetries(0) }

// Delete implements [rest.Interface].
func (o once) Delete() *rest.Request { return o.Interface.Delete().MaxRetries(0) }

// Get implements [rest.Interface].
func (o once) Get() *rest.Request { return o.Interface.Get().MaxRetries(0) }

// +kubebuilder:rbac:groups=forrst.dev,resources=locks,verbs=get;list;watch;create;update;delete

// Locks returns the requests in a namespace.
func (c *ObjectClient) Locks(namespace string) Objects {
	return patientObjects{Objects: c.locks(namespace), clock: c.clock}
}

// patientObjects repeats reads and deletes after an answer of 429: the API server has not carried
// them out. A create or an update is not repeated: the engine decides about it anew.
type patientObjects struct {
	Objects
	clock clock.Clock
}

// Delete implements [Objects].
func (p patientObjects) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	return p.untilAdmitted(ctx, func() error { return p.Objects.Delete(ctx, name, options) })
}

// Get implements [Objects].
func (p patientObjects) Get(ctx context.Context, name string, options metav1.GetOptions) (found *v1alpha1.Lock, err error) {
	err = p.untilAdmitted(ctx, func() error {
		found, err = p.Objects.Get(ctx, name, options)
		return err
	})
	return found, err
}

// List implements [Objects].
func (p patientObjects) List(ctx context.Context, options metav1.ListOptions) (found *v1alpha1.LockList, err error) {
	err = p.untilAdmitted(ctx, func() error {
		found, err = p.Objects.List(ctx, options)
		return err
	})
	return found, err
}

// untilAdmitted repeats the request as long as it is answered with 429 and a Retry-After that ends
// before ctx does.
func (p patientObjects) untilAdmitted(ctx context.Context, request func() error) error {
	for {
		err := request()
		seconds, isSuggested := apierrors.SuggestsClientDelay(err)
		if !isSuggested || !apierrors.IsTooManyRequests(err) {
			return err
		}
		delay := wait.Jitter(time.Duration(seconds)*time.Second, 0.2)
		if deadline, ok := ctx.Deadline(); ok && p.clock.Now().Add(delay).After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-p.clock.After(delay):
		}
	}
}

func (c *ObjectClient) locks(namespace string) *gentype.ClientWithList[*v1alpha1.Lock, *v1alpha1.LockList] {
	return gentype.NewClientWithList("locks", c.rest, c.codec, namespace,
		func() *v1alpha1.Lock { return &v1alpha1.Lock{} }, func() *v1alpha1.LockList { return &v1alpha1.LockList{} })
}

// Informer returns an informer for the locks of a namespace, or of all namespaces if it is empty,
// whose requests pass through the stream. The caller runs it. It needs the verbs list and watch.
func (c *ObjectClient) Informer(namespace string, stream *WatchStream) cache.SharedIndexInformer {
	return stream.NewInformer(c.source(namespace, fields.Everything()), &v1alpha1.Lock{}, 0, nil)
}

// KeyInformer returns an informer for the locks in use in a namespace, or in all namespaces if it is
// empty, whose requests pass through the stream. The caller runs it. It needs the verbs list and
// watch; rights on single locks by their names are enough.
func (c *ObjectClient) KeyInformer(namespace string, stream *WatchStream) *keywatch.Informer {
	return keywatch.New(keywatch.Options{
		Namespace: namespace,
		Open: func(name types.NamespacedName) (cache.ListerWatcher, func()) {
			part, forget := stream.newPart()
			return part.wrap(c.source(name.Namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name))), forget
		},
		Clock: stream.clock,
	})
}

func (c *ObjectClient) source(namespace string, selector fields.Selector) *cache.ListWatch {
	locks := c.locks(namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector.String()
			return locks.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector.String()
			return locks.Watch(ctx, options)
		},
	}
}

const (
	// failingAfter is how long all requests fail until the engine is said to have lost touch.
	failingAfter = time.Second
	// failingFor is how long that counts after the last of them.
	failingFor = 5 * time.Second
)

// reach tells whether the API server answers the requests of an engine.
type reach struct {
	timers clock.PassiveClock

	mu sync.Mutex
	// answered is when the API server has answered last.
	answered time.Time
	// since is from when on all requests have failed, and last when the last of them has. Zero if there are none.
	since, last time.Time
}

func (r *reach) isFailing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last.After(r.since) && r.timers.Since(r.since) >= failingAfter && r.timers.Since(r.last) < failingFor
}

// note takes in how a request has ended.
func (r *reach) note(began time.Time, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError { // It may be a refusal.
		r.answered, r.since, r.last = r.timers.Now(), time.Time{}, time.Time{}
		return
	}
	now := r.timers.Now()
	if now.Sub(r.last) >= failingFor {
		r.since = began
		if r.answered.After(began) {
			r.since = r.answered
		}
	}
	r.last = now
}

// noted are the requests of an engine in one namespace. All of its answers pass here, so that it takes in whether the API
// server answers, and which locks are gone, whatever the request was for.
type noted struct {
	Objects
	engine    *Engine
	namespace string
}

// ask takes in that a request about a lock begins. The result takes in how it has ended: if there is no such object, each
// that was there before the request has ended, that of the request among them.
func (n noted) ask(name string) (answered func(of *v1alpha1.Lock, err error)) {
	began := n.engine.reach.timers.Now()
	known := n.engine.queues.held(types.NamespacedName{Namespace: n.namespace, Name: name})
	return func(of *v1alpha1.Lock, err error) {
		n.engine.reach.note(began, err)
		if refusal.IsNotFound(err) {
			n.engine.recordNotFound(of)
			n.engine.recordNotFound(known)
		}
	}
}

// Create implements [Objects].
func (n noted) Create(ctx context.Context, lock *v1alpha1.Lock, options metav1.CreateOptions) (*v1alpha1.Lock, error) {
	began := n.engine.reach.timers.Now()
	stored, err := n.Objects.Create(ctx, lock, options)
	n.engine.reach.note(began, err)
	return stored, err
}

// Update implements [Objects].
func (n noted) Update(ctx context.Context, lock *v1alpha1.Lock, options metav1.UpdateOptions) (*v1alpha1.Lock, error) {
	answered := n.ask(lock.Name)
	stored, err := n.Objects.Update(ctx, lock, options)
	answered(lock, err)
	return stored, err
}

// Delete implements [Objects].
func (n noted) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	answered := n.ask(name)
	err := n.Objects.Delete(ctx, name, options)
	answered(n.meant(name, options.Preconditions), err)
	return err
}

// meant returns the object that a delete is for, or nil.
func (n noted) meant(name string, conditions *metav1.Preconditions) *v1alpha1.Lock {
	if conditions == nil || conditions.UID == nil || conditions.ResourceVersion == nil {
		return nil
	}
	return &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{
		Namespace: n.namespace, Name: name, UID: *conditions.UID, ResourceVersion: *conditions.ResourceVersion,
	}}
}

// Get implements [Objects].
func (n noted) Get(ctx context.Context, name string, options metav1.GetOptions) (*v1alpha1.Lock, error) {
	answered := n.ask(name)
	granted := n.engine.lockCache.own(types.NamespacedName{Namespace: n.namespace, Name: name})
	found, err := n.Objects.Get(ctx, name, options)
	answered(granted, err)
	return found, err
}
