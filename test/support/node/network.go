package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	bridge        = "pods"
	bridgeAddress = "10.244.1.254"
	// bridgeMAC is the bridge's own. Without one it takes the lowest of the pods' on it: with each that comes or
	// goes the others may send to one that is gone, until their neighbour tables expire after half a minute.
	bridgeMAC = "02:00:00:00:00:01"
	// apiServiceAddress is that of the Service kubernetes, the first of the devcluster's range.
	apiServiceAddress = "10.0.0.1"
)

// service is a Service, with the ready endpoints of its ports.
type service struct {
	namespace, name, address string
	// endpoints are addresses by the number of the port.
	endpoints map[int32][]string
}

// network is a bridge with the pods, and proxies at the addresses of Services.
type network struct {
	mu sync.Mutex
	// next is the number of the next pod.
	next int
	// targets are the endpoints by the address of the proxy in front of them.
	targets map[string][]string
	// spread chooses among the endpoints.
	spread    *rand.Rand
	listeners []net.Listener
	all       sync.WaitGroup
}

func newNetwork(ctx context.Context, apiServer string) (*network, error) {
	n := &network{targets: map[string][]string{}, spread: rand.New(rand.NewPCG(1, 0))}
	err := ip(ctx, "link add "+bridge+" address "+bridgeMAC+" type bridge", "addr add "+bridgeAddress+"/24 dev "+bridge, "link set "+bridge+" up")
	if err != nil {
		return nil, err
	}
	err = n.serve(ctx, []service{{address: apiServiceAddress, endpoints: map[int32][]string{443: {apiServer}}}})
	return n, err
}

// join makes a network namespace with an address of its own.
func (n *network) join(ctx context.Context) (name, address string, err error) {
	n.mu.Lock()
	n.next++
	number := strconv.Itoa(n.next)
	n.mu.Unlock()
	name, address = "pod"+number, "10.244.1."+number
	return name, address, ip(ctx,
		"netns add "+name,
		"link add veth"+number+" type veth peer name eth0 netns "+name,
		"link set veth"+number+" master "+bridge+" up",
		"-n "+name+" link set lo up",
		"-n "+name+" addr add "+address+"/24 dev eth0",
		"-n "+name+" link set eth0 up",
		"-n "+name+" route add default via "+bridgeAddress,
	)
}

func (n *network) leave(ctx context.Context, name string) error { return ip(ctx, "netns del "+name) }

// serve makes the Services reachable at their addresses.
func (n *network) serve(ctx context.Context, services []service) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, each := range services {
		for port, endpoints := range each.endpoints {
			at := net.JoinHostPort(each.address, strconv.Itoa(int(port)))
			_, known := n.targets[at]
			n.targets[at] = endpoints
			if known {
				continue
			}
			// Another port of the Service may have it already.
			_ = ip(ctx, "addr add "+each.address+"/32 dev "+bridge)
			listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
			if err != nil {
				return err
			}
			n.listeners = append(n.listeners, listener)
			n.all.Go(func() { n.accept(listener, at) })
		}
	}
	return nil
}

func (n *network) accept(listener net.Listener, at string) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		if endpoint := n.endpointOf(at); endpoint != "" {
			go proxy(connection, endpoint)
		} else {
			_ = connection.Close()
		}
	}
}

// endpointOf returns one of the endpoints of a Service, or "" without any.
func (n *network) endpointOf(at string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	endpoints := n.targets[at]
	if len(endpoints) == 0 {
		return ""
	}
	return endpoints[n.spread.IntN(len(endpoints))]
}

// proxy copies bytes until both ends are done.
func proxy(client net.Conn, endpoint string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", endpoint) //nolint:noctx // the bridge answers at once
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var copies sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
	}
	copies.Go(func() { pass(server, client) })
	copies.Go(func() { pass(client, server) })
	copies.Wait()
}

func (n *network) close(ctx context.Context) error {
	n.mu.Lock()
	var errs []error
	for _, listener := range n.listeners {
		errs = append(errs, listener.Close())
	}
	n.mu.Unlock()
	n.all.Wait()
	return errors.Join(append(errs, ip(ctx, "link del "+bridge))...)
}

// services reads the Services of the namespace with their ready endpoints.
func (n *Node) services(ctx context.Context) ([]service, error) {
	objects, err := n.options.Client.CoreV1().Services(n.options.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	slicesOf, err := n.options.Client.DiscoveryV1().EndpointSlices(n.options.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var services []service
	for _, object := range objects.Items {
		if net.ParseIP(object.Spec.ClusterIP) == nil {
			continue
		}
		each := service{namespace: object.Namespace, name: object.Name, address: object.Spec.ClusterIP, endpoints: map[int32][]string{}}
		for _, port := range object.Spec.Ports {
			each.endpoints[port.Port] = nil
			for _, slice := range slicesOf.Items {
				if slice.Labels[discoveryv1.LabelServiceName] == object.Name {
					each.endpoints[port.Port] = append(each.endpoints[port.Port], ready(slice, port.Name)...)
				}
			}
		}
		services = append(services, each)
	}
	return services, nil
}

// ready returns the addresses of the endpoints that are ready, for the port of that name.
func ready(slice discoveryv1.EndpointSlice, port string) []string {
	number := slices.IndexFunc(slice.Ports, func(each discoveryv1.EndpointPort) bool { return each.Name != nil && *each.Name == port })
	if number < 0 || slice.Ports[number].Port == nil {
		return nil
	}
	var addresses []string
	for _, endpoint := range slice.Endpoints {
		if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
			addresses = append(addresses, net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*slice.Ports[number].Port))))
		}
	}
	return addresses
}

// ip runs commands of iproute2.
func ip(ctx context.Context, commands ...string) error {
	for _, command := range commands {
		if output, err := exec.CommandContext(ctx, "ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, output)
		}
	}
	return nil
}
