package install_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/facade/peers"
	"forrst.dev/lock-operator/test/support/fixture"
)

// otherFacade is the second replica of the façade.
const otherFacade = "facade-other"

var (
	// replicas are the processes of the façade, which share their lines.
	replicas = []string{facade, otherFacade}
	// servers are the processes that serve a certificate to clients.
	servers = []string{facade, otherFacade, webhook}
)

// componentOf returns the component of a process.
func componentOf(process string) string {
	if process == otherFacade {
		return facade
	}
	return process
}

// linkReplicas writes where the replicas of the façade find each other.
func (i *issuing) linkReplicas(ctx context.Context) {
	GinkgoHelper()
	var members strings.Builder
	for _, replica := range replicas {
		i.links[replica] = newLink(ctx, fixture.FreeAddress(ctx))
		fmt.Fprintf(&members, "%s: %s\n", replica, i.links[replica].listener.Addr())
	}
	Expect(os.WriteFile(i.membersFile(), []byte(members.String()), 0o600)).To(Succeed())
}

func (i *issuing) membersFile() string { return filepath.Join(i.peersVolume, "members") }

func (i *issuing) authorityFile() string { return filepath.Join(i.peersVolume, "ca.crt") }

// peersFlags are those of a replica. There are no EndpointSlices, since there are no pods.
func (i *issuing) peersFlags(replica string) []string {
	return []string{
		"--peers-bind-address=" + i.links[replica].to, "--peers-file=" + i.membersFile(), "--peers-replica=" + replica,
		"--peers-token-file=" + filepath.Join(i.peersVolume, "token"), "--peers-authority-file=" + i.authorityFile(),
	}
}

// mountPeers writes the published authorities and a token of the façade into the volume, as far as they have changed.
func (i *issuing) mountPeers(ctx context.Context, versions map[string]string) {
	const volume = "peers"
	var publication corev1.ConfigMap
	key := client.ObjectKey{Namespace: i.namespace, Name: i.prefix + "lock-operator-authority"}
	if err := environment.Admin.Client.Get(ctx, key, &publication); err != nil || publication.Data["ca.crt"] == "" || publication.ResourceVersion == versions[volume] {
		return
	}
	token, err := issueToken(ctx, i.namespace, i.prefix+"lock-operator-facade", peers.Audience)
	if err == nil {
		err = writeVolume(i.peersVolume, publication.ResourceVersion, map[string][]byte{"ca.crt": []byte(publication.Data["ca.crt"]), "token": []byte(token)})
	}
	if err != nil {
		GinkgoWriter.Println("write a volume:", err)
		return
	}
	versions[volume] = publication.ResourceVersion
}

// trustedByPeers are the authorities that the replicas trust.
func (i *issuing) trustedByPeers() []*x509.Certificate {
	content, err := os.ReadFile(i.authorityFile())
	if err != nil {
		return nil
	}
	authorities, _ := cert.ParseCertsPEM(content)
	return authorities
}

// servedToPeers is the serial number of the certificate that a replica serves the others, which trust what is mounted.
func (i *issuing) servedToPeers(ctx context.Context, replica string) (string, error) {
	connection, err := i.handshake(ctx, i.links[replica].to, facade, i.trustedByPeers(), "h2")
	if err != nil {
		return "", err
	}
	return connection.ConnectionState().PeerCertificates[0].SerialNumber.Text(16), connection.Close()
}

// expectConnected waits until each replica asks the other one, and goes on doing so.
func (i *issuing) expectConnected(ctx context.Context, scraper string) {
	GinkgoHelper()
	areConnected := func(g Gomega) {
		for _, replica := range replicas {
			text, err := i.scrape(ctx, replica, scraper)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(text).To(MatchRegexp(`(?m)^lock_operator_facade_peers\{state="connected"\} 1$`), replica)
		}
	}
	Eventually(areConnected).WithTimeout(operatorTimeout).Should(Succeed())
	Consistently(areConnected).WithTimeout(time.Second).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// reconnect cuts the connections between the replicas, and waits until there are others: what was verified before stays
// open as long as the processes do.
func (i *issuing) reconnect(ctx context.Context, scraper string) {
	GinkgoHelper()
	for _, replica := range replicas {
		cut := i.links[replica]
		before := cut.passed()
		cut.cut()
		Eventually(cut.passed).WithTimeout(operatorTimeout).Should(BeNumerically(">", before), "to the %s", replica)
	}
	i.expectConnected(ctx, scraper)
}

// waiting are callers that wait for a lock that is held, one at each replica.
type waiting struct {
	installed          *issuing
	key, token, holder string
	served             chan error
}

func (i *issuing) startWaiting(ctx context.Context, key, token string) *waiting {
	GinkgoHelper()
	holder, err := i.send(ctx, "POST", facade, key, token, "", `{"ttl_seconds":600}`)
	Expect(err).NotTo(HaveOccurred())
	started := &waiting{installed: i, key: key, token: token, holder: holder, served: make(chan error, len(replicas))}
	for _, replica := range replicas {
		go func() { started.served <- i.passOn(ctx, replica, key, token) }()
	}
	started.expectInLine(ctx)
	return started
}

// expectInLine waits until each replica tells that all of them stand in one line.
func (w *waiting) expectInLine(ctx context.Context) {
	GinkgoHelper()
	for _, replica := range replicas {
		Eventually(func(g Gomega) {
			select {
			case err := <-w.served:
				StopTrying("a caller is answered while the lock is held").Wrap(err).Now()
			default:
			}
			g.Expect(w.installed.waiters(ctx, replica, w.key, w.token)).To(Equal(len(replicas)))
		}).WithContext(ctx).WithTimeout(operatorTimeout).Should(Succeed(), "at the %s", replica)
	}
}

// serve gives the lock back. All get it in turn, and none has got an error before.
func (w *waiting) serve(ctx context.Context) {
	GinkgoHelper()
	w.expectInLine(ctx)
	_, err := w.installed.send(ctx, "DELETE", facade, w.key, w.token, w.holder, "")
	Expect(err).NotTo(HaveOccurred())
	for range replicas {
		Eventually(w.served).WithTimeout(operatorTimeout).Should(Receive(Succeed()))
	}
}

// link passes on the connections to a replica, and can cut them.
type link struct {
	to       string
	listener net.Listener

	mu     sync.Mutex
	open   map[net.Conn]bool
	number int
}

func newLink(ctx context.Context, to string) *link {
	GinkgoHelper()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	l := &link{to: to, listener: listener, open: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			accepted, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { l.pass(accepted) })
		}
	})
	DeferCleanup(func() {
		_ = listener.Close()
		l.cut()
		running.Wait()
	})
	return l
}

// pass passes on until either end ends it.
func (l *link) pass(accepted net.Conn) {
	defer func() { _ = accepted.Close() }()
	dialed, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer func() { _ = dialed.Close() }()
	l.add(accepted)
	defer l.remove(accepted)
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{accepted, dialed}, {dialed, accepted}} {
		go func() {
			_, _ = pair[0].(*net.TCPConn).ReadFrom(pair[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}

func (l *link) add(accepted net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[accepted] = true
	l.number++
}

func (l *link) remove(accepted net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, accepted)
}

// passed counts the connections that were passed on.
func (l *link) passed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.number
}

// cut ends the connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for accepted := range l.open {
		_ = accepted.Close()
	}
}
