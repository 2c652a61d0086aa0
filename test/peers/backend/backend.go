// Package backend opens the backend that a suite of another library runs on.
package backend

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"

	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/locktest"
)

const (
	// Variable tells a process where its locks are: [Memory], the URL of a façade, or the path of a kubeconfig for a
	// direct engine.
	Variable = "PEERS_LOCKS"
	// NamespaceVariable tells it their namespace.
	NamespaceVariable = "PEERS_NAMESPACE"
	// Memory is the backend in memory, of which a process has one.
	Memory = "memory"
)

var memory = sync.OnceValue(func() *locktest.Backend { return locktest.New() })

// Open returns a client of the backend. After a call of done, nothing of it is left: no goroutine and no connection.
func Open() (locks *lock.Client, done func(), err error) {
	where, namespace := os.Getenv(Variable), os.Getenv(NamespaceVariable)
	switch {
	case namespace == "":
		return nil, nil, fmt.Errorf("%s is not set", NamespaceVariable)
	case where == Memory:
		return lock.NewClient(memory(), namespace), func() {}, nil
	case strings.HasPrefix(where, "http://"):
		served, err := client.New(where)
		if err != nil {
			return nil, nil, err
		}
		return lock.NewClient(served, namespace), served.Close, nil
	default:
		return openDirect(where, namespace)
	}
}

func openDirect(kubeconfig, namespace string) (locks *lock.Client, done func(), err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	config.QPS = -1
	connections := &connections{}
	config.Dial = connections.dial
	direct, err := engine.NewDirect(config, namespace, logr.Discard())
	if err != nil {
		return nil, nil, err
	}
	running, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := direct.Start(running); err != nil {
			panic(err) // no caller is left to tell
		}
	})
	return lock.NewClient(direct, namespace), func() {
		stop()
		ended.Wait()
		connections.close()
	}, nil
}

// connections are those of one engine. A transport of client-go keeps its own for the next caller, which the suites
// take for a leak.
type connections struct {
	mu   sync.Mutex
	open []net.Conn
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	made, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		c.mu.Lock()
		c.open = append(c.open, made)
		c.mu.Unlock()
	}
	return made, err
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, made := range c.open {
		_ = made.Close() // it may be closed already
	}
}
