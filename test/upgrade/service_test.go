package upgrade_test

import (
	"context"
	"io"
	"net"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// service sends the connections to an address to the replicas behind it in turn, as the Service of a
// Deployment does. A connection stays with its replica.
type service struct {
	address  string
	listener net.Listener

	mu       sync.Mutex
	replicas []string
	next     int
}

func newService(ctx context.Context) *service {
	GinkgoHelper()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	made := &service{address: listener.Addr().String(), listener: listener}
	served := make(chan struct{})
	go func() {
		defer close(served)
		made.serve()
	}()
	DeferCleanup(func() {
		_ = listener.Close()
		<-served
	})
	return made
}

func (s *service) serve() {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		connections.Go(func() { forward(client, s.choose()) })
	}
}

func (s *service) choose() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.replicas) == 0 {
		return ""
	}
	s.next++
	return s.replicas[s.next%len(s.replicas)]
}

func (s *service) add(replica string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = append(s.replicas, replica)
}

func (s *service) remove(replica string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for index, candidate := range s.replicas {
		if candidate == replica {
			s.replicas = append(s.replicas[:index:index], s.replicas[index+1:]...)
			return
		}
	}
}

func forward(client net.Conn, replica string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", replica) //nolint:noctx // It fails at once on this machine.
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var directions sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		directions.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			if tcp, ok := pair[0].(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
		})
	}
	directions.Wait()
}
