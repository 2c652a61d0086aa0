package engine

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
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
// every call is exactly one request. Safe for concurrent use.
type ObjectClient struct {
	rest  rest.Interface
	codec runtime.ParameterCodec
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
	return &ObjectClient{rest: once{restClient}, codec: runtime.NewParameterCodec(scheme)}, nil
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
func (c *ObjectClient) Locks(namespace string) Objects { return c.locks(namespace) }

func (c *ObjectClient) locks(namespace string) *gentype.ClientWithList[*v1alpha1.Lock, *v1alpha1.LockList] {
	return gentype.NewClientWithList("locks", c.rest, c.codec, namespace,
		func() *v1alpha1.Lock { return &v1alpha1.Lock{} }, func() *v1alpha1.LockList { return &v1alpha1.LockList{} })
}

// Informer returns an informer for the locks of a namespace, or of all namespaces if it is empty,
// whose requests pass through the stream. The caller runs it. It needs the verbs list and watch.
func (c *ObjectClient) Informer(namespace string, stream *WatchStream) cache.SharedIndexInformer {
	locks := c.locks(namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return locks.List(ctx, options)
		},
		WatchFuncWithContext: locks.Watch,
	}
	return stream.NewInformer(source, &v1alpha1.Lock{}, 0, nil)
}
