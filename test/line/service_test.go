package line_test

import (
	"context"
	"io"
	"net"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// service passes each new connection to one of the replicas, as a Service does.
type service struct {
	listener net.Listener
}

// newService returns one that passes each connection to the address that next returns.
func newService(ctx context.Context, next func() string) *service {
	GinkgoHelper()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	s := &service{listener: listener}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			accepted, err := listener.Accept()
			if err != nil {
				return
			}
			go pass(accepted, next())
		}
	})
	DeferCleanup(func() {
		Expect(listener.Close()).To(Succeed())
		running.Wait()
	})
	return s
}

// pass passes on until one side ends.
func pass(accepted net.Conn, to string) {
	defer func() { _ = accepted.Close() }()
	dialed, err := (&net.Dialer{Timeout: patience}).Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = dialed.Close() }()
	go func() {
		_, _ = io.Copy(dialed, accepted) // Either end may end it.
		_ = dialed.Close()
	}()
	_, _ = io.Copy(accepted, dialed)
}
