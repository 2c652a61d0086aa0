package line_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/facade/peers"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/line"
	"forrst.dev/lock-operator/test/support/fixture"
)

const (
	system  = "forrst-system"
	account = "lock-operator-facade"
	// controllers is the account of the controllers, whose Jobs stand in the lines.
	controllers = "lock-operator-controllers"
	// serviceName is the name in the certificates of replicas.
	serviceName = account + "." + system + ".svc"
	// patience has room for a slow machine.
	patience = 2 * time.Minute
)

// installation is a façade of several replicas.
type installation struct {
	folder    string
	authority []byte
	identity  fixture.Identity
	// gateways are between the replicas and the API server, in the order in which the replicas were started.
	gateways []*gateway
	// doors are the addresses of all, guarded by mu.
	mu    sync.Mutex
	doors []string
	// lag is how late events of watches reach the replicas that are started from now on.
	lag       time.Duration
	transport *http.Transport
	all       []*replica
	started   int
}

// replica is one process of the façade.
type replica struct {
	name, address, peers, metrics string
	process                       *gexec.Session
}

func install(ctx context.Context, replicas int) *installation {
	GinkgoHelper()
	i := &installation{folder: GinkgoT().TempDir()}
	certificate, key, err := cert.GenerateSelfSignedCertKey(serviceName, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	Expect(err).NotTo(HaveOccurred())
	i.authority = certificate
	i.transport = i.newTransport()
	i.write("tls.crt", certificate)
	i.write("tls.key", key)
	i.identity = environment.Identity("system:serviceaccount:"+system+":"+account,
		"system:serviceaccounts", "system:serviceaccounts:"+system, "system:authenticated")
	i.write("token", []byte(tokenOf(ctx, system, account, peers.Audience)))
	for range replicas {
		i.start(ctx)
	}
	i.meet(ctx)
	return i
}

func (i *installation) path(name string) string { return filepath.Join(i.folder, name) }

func (i *installation) write(name string, content []byte) {
	GinkgoHelper()
	Expect(os.WriteFile(i.path(name), content, 0o600)).To(Succeed())
}

// start starts another replica and waits until it is ready.
func (i *installation) start(ctx context.Context) {
	GinkgoHelper()
	i.started++
	started := &replica{name: fmt.Sprintf("facade-%02d", i.started), address: fixture.FreeAddress(ctx), peers: fixture.FreeAddress(ctx), metrics: fixture.FreeAddress(ctx)}
	between := newGateway(i.identity)
	between.behind(i.lag)
	i.gateways = append(i.gateways, between)
	started.process = fixture.StartOperator(ctx, between.kubectl,
		"--components=facade", "--metrics-bind-address="+started.metrics, "--audit-log=", "--leader-election-namespace="+system,
		"--facade-bind-address="+started.address, "--facade-tls-cert-file="+i.path("tls.crt"), "--facade-tls-key-file="+i.path("tls.key"),
		"--facade-audiences="+audience, "--facade-shutdown-delay=1s", "--facade-max-block=1h",
		"--facade-max-rate-per-caller=0", "--facade-shares=1", "--facade-max-connections-per-address=10000",
		"--facade-max-line-per-lock=0", "--facade-max-line-per-namespace=0", "--facade-max-line-per-caller=0",
		"--controllers-user=system:serviceaccount:"+system+":"+controllers,
		"--peers-bind-address="+started.peers, "--peers-service="+account, "--peers-file="+i.path("members"), "--peers-replica="+started.name,
		"--peers-token-file="+i.path("token"), "--peers-authority-file="+i.path("tls.crt"))
	i.all = append(i.all, started)
	i.tell()
}

// tell writes who the replicas are.
func (i *installation) tell() {
	GinkgoHelper()
	var members strings.Builder
	for _, at := range i.all {
		fmt.Fprintf(&members, "%s: %s\n", at.name, at.peers)
	}
	i.mu.Lock()
	i.doors = nil
	for _, at := range i.all {
		i.doors = append(i.doors, at.address)
	}
	i.mu.Unlock()
	i.write("members.next", []byte(members.String()))
	Expect(os.Rename(i.path("members.next"), i.path("members"))).To(Succeed())
}

// home returns the replica that is home to the line of a global key, and the others.
func (i *installation) home(namespace, key string) (home *replica, others []*replica) {
	var names []string
	for _, at := range i.all {
		names = append(names, at.name)
	}
	name := line.HomeOf(types.NamespacedName{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()}, names)
	for _, at := range i.all {
		if at.name == name {
			home = at
		} else {
			others = append(others, at)
		}
	}
	return home, others
}

const audience = "lock-operator.forrst.dev"

// meet waits until the replicas ask each other.
func (i *installation) meet(ctx context.Context) {
	GinkgoHelper()
	if len(i.all) == 1 {
		return
	}
	var names []string
	for _, at := range i.all {
		names = append(names, at.name)
	}
	for _, at := range i.all {
		Eventually(at.process.Err).WithContext(ctx).WithTimeout(patience).Should(gbytes.Say("Sharing lines.*" + strings.Join(names, ".*")))
	}
}

// awaitWaiters waits until a replica says that so many callers wait for a lock. It asks as one of them, so it must ask far less
// often than the rate that they have together.
func (i *installation) awaitWaiters(ctx context.Context, at *replica, namespace, key, token string, number int) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) (int, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet,
			"https://"+at.address+"/v1/namespaces/"+namespace+"/locks/"+key+"/waiters?limit=500", http.NoBody)
		if err != nil {
			return 0, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := i.transport.RoundTrip(request)
		if err != nil {
			return 0, err
		}
		defer func() { _ = response.Body.Close() }() // Only read.
		if response.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("%s", response.Status)
		}
		var listed wire.Waiters
		if err := json.NewDecoder(response.Body).Decode(&listed); err != nil {
			return 0, err
		}
		return len(listed.Waiters), nil
	}).WithContext(ctx).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(Equal(number))
}

// caller is a client of one replica, which it has called before.
func (i *installation) caller(ctx context.Context, at *replica, namespace, token string) *lock.Client {
	GinkgoHelper()
	backend, err := client.New("https://"+at.address, client.WithHTTPClient(&http.Client{Transport: i.newTransport()}),
		client.WithBearerToken(func(context.Context) (string, error) { return token, nil }))
	Expect(err).NotTo(HaveOccurred())
	made := lock.NewClient(backend, namespace)
	held, err := made.Acquire(ctx, "warm")
	Expect(err).NotTo(HaveOccurred())
	Expect(held.Release(ctx)).To(Succeed())
	return made
}

func (i *installation) newTransport() *http.Transport {
	GinkgoHelper()
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(i.authority)).To(BeTrue())
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
}

// tokenOf returns a token of a service account for the audiences; without any, for that of the API server.
func tokenOf(ctx context.Context, namespace, name string, audiences ...string) string {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	Expect(environment.Admin.Client.SubResource("token").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, request)).To(Succeed())
	return request.Status.Token
}
