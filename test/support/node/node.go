// Package node runs the pods of one namespace, as a kubelet, a container network and a service proxy
// would: each in a container and a network namespace of its own, with what its spec says. It needs
// root, Debian's podman, runc and iproute2, and a network namespace that no other program uses.
//
// It knows what the pods of this project have: one container each, volumes of Secrets, ConfigMaps and
// tokens, probes by HTTP. It refuses other pods.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"forrst.dev/lock-operator/test/support/container"
)

// period is how often the node looks at its pods and Services.
const period = 200 * time.Millisecond

// Options are the options of [Start].
type Options struct {
	// Client is an administrator's.
	Client kubernetes.Interface
	// APIServer is the address at which the API server listens.
	APIServer string
	Namespace string
	Store     *container.Store
	// Image is what Store has. Pods of another one stay pending, as those whose image cannot be pulled.
	Image string
	// Logs is the folder of the containers' logs, one file for each container.
	Logs string
}

// Node runs pods. Safe for concurrent use.
type Node struct {
	options Options
	folder  string
	network *network
	stop    context.CancelFunc
	all     sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]*pod
	errs []error
}

// Start prepares the network and runs the pods of the namespace until [Node.Stop].
func Start(ctx context.Context, options Options) (*Node, error) {
	network, err := newNetwork(ctx, options.APIServer)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "lock-operator-node-")
	if err != nil {
		return nil, errors.Join(err, network.close(ctx))
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	n := &Node{options: options, folder: folder, network: network, stop: stop, pods: map[types.UID]*pod{}}
	n.all.Go(func() { n.loop(ctx) })
	return n, nil
}

// Stop ends all pods without a word to the API server, and returns what has gone wrong so far.
func (n *Node) Stop() error {
	n.stop()
	n.all.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return errors.Join(append(n.errs, n.network.close(context.Background()), os.RemoveAll(n.folder))...)
}

// Logs returns what the containers of the pods whose names begin so have written.
func (n *Node) Logs(prefix string) string {
	paths, _ := filepath.Glob(filepath.Join(n.options.Logs, prefix+"*.log"))
	var text strings.Builder
	for _, path := range paths {
		content, _ := os.ReadFile(path)
		text.Write(content)
	}
	return text.String()
}

func (n *Node) loop(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if err := n.pass(ctx); err != nil && ctx.Err() == nil {
			n.note(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// pass starts new pods, tells those that are to end, and follows the Services.
func (n *Node) pass(ctx context.Context) error {
	services, err := n.services(ctx)
	if err != nil {
		return fmt.Errorf("reading Services: %w", err)
	}
	if err := n.network.serve(ctx, services); err != nil {
		return err
	}
	present, err := n.options.Client.CoreV1().Pods(n.options.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	seen := map[types.UID]bool{}
	for i := range present.Items {
		object := &present.Items[i]
		seen[object.UID] = true
		n.follow(ctx, object, services)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid, running := range n.pods {
		if !seen[uid] {
			running.end()
			delete(n.pods, uid)
		}
	}
	return nil
}

// follow starts the pod, or ends it if it is deleted.
func (n *Node) follow(ctx context.Context, object *corev1.Pod, services []service) {
	n.mu.Lock()
	defer n.mu.Unlock()
	running, known := n.pods[object.UID]
	switch {
	case known && object.DeletionTimestamp != nil:
		running.end()
	case !known && object.Spec.NodeName != "" && object.Status.Phase == corev1.PodPending && object.Spec.Containers[0].Image == n.options.Image:
		running = newPod(n, object, services)
		n.pods[object.UID] = running
		n.all.Go(func() {
			if err := running.run(ctx); err != nil && ctx.Err() == nil {
				n.note(fmt.Errorf("pod %s: %w", object.Name, err))
			}
		})
	case !known && object.DeletionTimestamp != nil:
		_ = n.remove(ctx, object)
	}
}

// remove tells the API server that no container of the pod runs any more.
func (n *Node) remove(ctx context.Context, object *corev1.Pod) error {
	return n.options.Client.CoreV1().Pods(object.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(object.UID)),
	})
}

func (n *Node) note(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.ContainsFunc(n.errs, func(known error) bool { return known.Error() == err.Error() }) {
		n.errs = append(n.errs, err)
	}
}

// hosts are the names that a container knows: those that the cluster's DNS would.
func hosts(services []service) map[string]string {
	names := map[string]string{"kubernetes.default.svc": apiServiceAddress}
	for _, each := range services {
		for _, suffix := range []string{"", ".svc", ".svc.cluster.local"} {
			names[each.name+"."+each.namespace+suffix] = each.address
		}
	}
	return names
}
