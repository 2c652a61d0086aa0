package peers

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"
)

// +kubebuilder:rbac:groups=discovery.k8s.io,namespace=forrst-system,resources=endpointslices,verbs=list;watch

// FromSlices returns a source that watches the EndpointSlices of a service. The replicas are Pods, and their
// port is the one with the [PortName].
func FromSlices(client kubernetes.Interface, namespace, service string) Source {
	return sliceSource{informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = discoveryv1.LabelServiceName + "=" + service
		})).Discovery().V1().EndpointSlices().Informer()}
}

type sliceSource struct{ informer cache.SharedIndexInformer }

func (s sliceSource) run(ctx context.Context, changed func([]member)) {
	tell := func() {
		var found []*discoveryv1.EndpointSlice
		for _, object := range s.informer.GetStore().List() {
			if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
				found = append(found, slice)
			}
		}
		changed(membersOf(found))
	}
	// The events of one handler come one after the other.
	if _, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell() }, UpdateFunc: func(_, _ any) { tell() }, DeleteFunc: func(any) { tell() },
	}); err != nil {
		return // The informer has stopped.
	}
	s.informer.RunWithContext(ctx)
}

// readEvery is how often the file of [FromFile] is read.
const readEvery = 200 * time.Millisecond

// FromFile returns a source that reads a YAML file of names and addresses again and again: for replicas outside
// of a cluster, and on one machine. It waits for a file that is not there.
func FromFile(path string, timers clock.WithTicker, log logr.Logger) Source {
	return fileSource{path: path, timers: timers, log: log}
}

type fileSource struct {
	path   string
	timers clock.WithTicker
	log    logr.Logger
}

func (s fileSource) run(ctx context.Context, changed func([]member)) {
	ticker := s.timers.NewTicker(readEvery)
	defer ticker.Stop()
	var last []member
	for {
		if now, isKnown := s.read(); isKnown && !slices.Equal(now, last) {
			last = now
			changed(now)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (s fileSource) read() (members []member, isKnown bool) {
	content, err := os.ReadFile(s.path)
	if err != nil {
		return nil, false
	}
	var addresses map[string]string
	if err := yaml.UnmarshalStrict(content, &addresses); err != nil {
		s.log.V(1).Info("The file of the replicas cannot be read", "path", s.path, "reason", err.Error())
		return nil, false
	}
	for name, address := range addresses {
		members = append(members, member{name: name, address: address})
	}
	return byName(members), true
}
