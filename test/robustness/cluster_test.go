package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

// cluster is a control plane with replicas, each behind a proxy of its own.
type cluster struct {
	environment *testenv.Environment
	// apiServers are two, with one etcd. Each second replica uses the second.
	apiServers []*testenv.APIServer
	admin      client.Client
	history    *history
	// journal is that of the present part.
	journal  *journal
	proxies  []*proxy
	replicas []*replica

	// tokens are bearer tokens of different users.
	tokens       []string
	reservations reservations
	programs     []*program
	// holders are programs in processes of their own, one for each replica.
	holders []*holder
	// declared are locks that the operator renews, as they were made.
	declared     []*v1alpha1.Lock
	stopPrograms func() error
	// peering is nil unless the replicas share lines.
	peering *peering
}

// startCluster starts everything. The caller stops the cluster, also after an error.
func startCluster(ctx context.Context, binary, artifacts string, options options) (*cluster, error) {
	c := &cluster{history: &history{start: time.Now()}, reservations: reservations{taken: map[string]bool{}}}
	var err error
	if c.environment, err = testenv.Start(ctx); err != nil {
		return c, err
	}
	another, err := c.environment.AnotherAPIServer()
	if err != nil {
		return c, err
	}
	c.apiServers = []*testenv.APIServer{c.environment.APIServer(), another}
	if c.admin, err = client.New(c.environment.Config, client.Options{Scheme: c.environment.Scheme}); err != nil {
		return c, err
	}
	operator, _, err := c.environment.User(testenv.OperatorUser, "system:serviceaccounts", "system:serviceaccounts:forrst-system")
	if err != nil {
		return c, err
	}
	if err := c.declare(ctx, options); err != nil {
		return c, err
	}
	folder := ""
	if options.isShared {
		if c.peering, err = newPeering(ctx, c.environment.Config, artifacts, options.replicas); err != nil {
			return c, err
		}
		folder = c.peering.folder
	}
	for number := range options.replicas {
		which := number % len(c.apiServers)
		proxy, err := newProxy(c.apiServers[which].Config(operator), options.seed+uint64(number), time.Duration(which)*apiServersDiffer)
		if err != nil {
			return c, err
		}
		c.proxies = append(c.proxies, proxy)
		replica, err := startReplica(binary, artifacts, nameOf(number), proxy, options.allowance, folder)
		if err != nil {
			return c, err
		}
		c.replicas = append(c.replicas, replica)
		if c.peering != nil {
			c.peering.leadTo(number, replica)
		}
		holder, err := startHolder(binary, artifacts, fmt.Sprintf("holder-%d", number), "http://"+replica.address)
		if err != nil {
			return c, err
		}
		c.holders = append(c.holders, holder)
	}
	if c.tokens, err = makeTokens(ctx, c.environment.Config); err != nil {
		return c, err
	}
	c.stopPrograms, err = c.startPrograms(ctx)
	return c, err
}

// addresses are those of the façades.
func (c *cluster) addresses() []string {
	var addresses []string
	for _, replica := range c.replicas {
		addresses = append(addresses, replica.address)
	}
	return addresses
}

func (c *cluster) stop() error {
	var problems []error
	if c.stopPrograms != nil {
		problems = append(problems, c.stopPrograms())
	}
	for _, holder := range c.holders {
		problems = append(problems, holder.stop())
	}
	for _, replica := range c.replicas {
		if replica.isRunning() {
			problems = append(problems, replica.stop())
		}
		problems = append(problems, replica.dataRace())
	}
	if c.peering != nil {
		c.peering.stop()
	}
	for _, proxy := range c.proxies {
		proxy.connections.swallow(holes{})
		proxy.connections.reset()
		proxy.Close()
	}
	if len(c.apiServers) > 1 {
		problems = append(problems, c.apiServers[1].Stop())
	}
	if c.environment != nil {
		problems = append(problems, c.environment.Stop())
	}
	return errors.Join(problems...)
}

// locks returns how many objects of clients and probes there are.
func (c *cluster) locks(ctx context.Context) (int, error) {
	var locks v1alpha1.LockList
	err := c.admin.List(ctx, &locks, client.InNamespace(clientNamespace))
	return len(locks.Items), err
}

// artifactsDir returns a folder for logs and pictures: $ARTIFACTS, or a temporary one.
func artifactsDir(name string) (string, error) {
	if root := os.Getenv("ARTIFACTS"); root != "" {
		if err := os.MkdirAll(root, 0o755); err != nil {
			return "", err
		}
		return os.MkdirTemp(root, name+"-")
	}
	return os.MkdirTemp("", "lock-operator-"+name+"-")
}
