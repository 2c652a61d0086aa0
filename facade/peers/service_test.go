package peers_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/peers"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/line"
)

const (
	serverName = "lock-operator-facade.forrst-system.svc"
	own        = "system:serviceaccount:forrst-system:lock-operator-facade"
	guest      = "system:serviceaccount:forrst-system:lock-operator-controllers"
	patience   = time.Minute
)

// local is an engine in whose lines none waits.
type local struct{ line.Local }

func (local) Lines(context.Context, string, v1alpha1.FullKey, int) (lines []lock.Line, isComplete bool, err error) {
	return nil, true, nil
}

func (local) IsRunning() bool { return true }

func (local) HasLostTouch() bool { return false }

func (local) Now() time.Time { return time.Now() }

func (local) OnRelease(func(context.Context, *v1alpha1.Lock)) {}

// reviews know the users of tokens, and count what they are asked.
type reviews struct {
	users map[string]string
	asked atomic.Int64
}

func (r *reviews) Authenticate(request *http.Request) (user.Info, error) {
	defer r.asked.Add(1)
	name, isKnown := r.users[request.Header.Get("Authorization")]
	if !isKnown {
		return nil, errors.New("no such token")
	}
	return &user.DefaultInfo{Name: name}, nil
}

// pair is a replica that serves, and another one that calls it.
type pair struct {
	t       *testing.T
	folder  string
	reviews *reviews
	calling *line.Line
	// serving is the address of the replica that serves.
	serving string
	// handshakes counts those that the serving replica has begun.
	handshakes atomic.Int64
	// logged is what the caller logs, at the time of clock.
	logged lines
	clock  aheadClock
}

// aheadClock is ahead of the real clock.
type aheadClock struct {
	clock.RealClock
	by atomic.Int64
}

func (c *aheadClock) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

func connect(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, folder: t.TempDir(), reviews: &reviews{users: map[string]string{"Bearer own": own, "Bearer guest": guest, "Bearer tenant": "system:serviceaccount:payments:worker"}}}
	certificate, key, err := cert.GenerateSelfSignedCertKey(serverName, nil, nil)
	check(t, err)
	served, err := tls.X509KeyPair(certificate, key)
	check(t, err)
	p.write("ca.crt", string(certificate))
	p.write("token", "own\n")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	p.write("members", fmt.Sprintf("a: 127.0.0.1:1\nb: %s\n", listener.Addr()))
	p.serving = listener.Addr().String()
	serving := newLine(t, line.Options{Self: "b"})
	service, err := peers.NewService(peers.Options{
		Line: serving, Listener: listener, Access: p.reviews, User: own, Guest: guest,
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			p.handshakes.Add(1)
			return &served, nil
		},
	})
	check(t, err)
	p.calling = newLine(t, line.Options{Self: "a", Clock: &p.clock, Logger: funcr.New(p.logged.add, funcr.Options{})})
	p.run(serving.Start, p.calling.Start, service.Start)
	return p
}

// watch has the caller find the other replica by the file.
func (p *pair) watch(serverName string) *peers.Watch {
	p.t.Helper()
	watch, err := peers.NewWatch(peers.WatchOptions{
		Source: peers.FromFile(p.path("members"), clock.RealClock{}, logr.Discard()), Line: p.calling,
		TokenFile: p.path("token"), AuthorityFile: p.path("ca.crt"), ServerName: serverName,
	})
	check(p.t, err)
	p.run(watch.Start)
	return watch
}

// run runs them until the test ends, in which they must not fail.
func (p *pair) run(all ...func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(p.t.Context()))
	var running sync.WaitGroup
	for _, start := range all {
		running.Go(func() {
			if err := start(ctx); err != nil {
				p.t.Error(err)
			}
		})
	}
	p.t.Cleanup(func() { stop(); running.Wait() })
}

func (p *pair) path(name string) string { return filepath.Join(p.folder, name) }

func (p *pair) write(name, content string) {
	p.t.Helper()
	check(p.t, os.WriteFile(p.path(name), []byte(content), 0o600))
}

// mustMeet waits until the caller has a stream.
func (p *pair) mustMeet() {
	p.t.Helper()
	await(p.t, func() bool {
		ready, connected := p.calling.Peers()
		return ready == 1 && connected == 1
	})
}

// mustBeApart fails if the caller has a stream after it has tried twice.
func (p *pair) mustBeApart(tried *atomic.Int64) {
	p.t.Helper()
	before := tried.Load()
	await(p.t, func() bool { return tried.Load() >= before+2 })
	if ready, connected := p.calling.Peers(); ready != 1 || connected != 0 {
		p.t.Errorf("of %d replicas that are ready, %d are connected", ready, connected)
	}
}

func TestReplicasMeet(t *testing.T) {
	p := connect(t)
	watch := p.watch(serverName)
	p.mustMeet()
	if got := watch.Known(); got != 2 {
		t.Errorf("%d replicas are known", got)
	}
	p.write("members", "a: 127.0.0.1:1\n")
	await(t, func() bool {
		ready, connected := p.calling.Peers()
		return ready == 0 && connected == 0
	})
}

func TestOnlyReplicasAreServed(t *testing.T) {
	p := connect(t)
	p.write("token", "tenant")
	p.watch(serverName)
	p.mustBeApart(&p.reviews.asked)
}

// A guest is served, and not told what only a replica may ask for.
func TestAGuestIsServedAsOne(t *testing.T) {
	for token, isTold := range map[string]bool{"own": true, "guest": false} {
		t.Run(token, func(t *testing.T) {
			p := connect(t)
			p.write("token", token)
			p.watch(serverName)
			p.mustMeet()
			of := v1alpha1.FullKeyOf("a")
			for i := 0; p.calling.IsHome("default", of); i++ {
				of = v1alpha1.FullKeyOf(fmt.Sprint(i)) // The other replica is home to one of them.
			}
			if _, _, err := p.calling.Lines(t.Context(), "default", of, 1); (err == nil) != isTold {
				t.Errorf("the answer is %v", err)
			}
		})
	}
}

func TestGuestsDifferFromReplicas(t *testing.T) {
	_, err := peers.NewService(peers.Options{
		Line: newLine(t, line.Options{Self: "a"}), Listener: &net.TCPListener{}, Access: new(reviews), User: own, Guest: own,
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none") },
	})
	if err == nil {
		t.Error("it is made")
	}
}

func TestATokenIsShownToReplicasAlone(t *testing.T) {
	for name, serverName := range map[string]string{"of another authority": serverName, "of another name": "lock-operator-webhook.forrst-system.svc"} {
		t.Run(name, func(t *testing.T) {
			p := connect(t)
			if name == "of another authority" {
				other, _, err := cert.GenerateSelfSignedCertKey(serverName, nil, nil)
				check(t, err)
				p.write("ca.crt", string(other))
			}
			p.watch(serverName)
			p.mustBeApart(&p.handshakes)
			if asked := p.reviews.asked.Load(); asked != 0 {
				t.Errorf("a token was shown %d times to a server that is no replica", asked)
			}
		})
	}
}

func TestTheAuthorityMayComeLater(t *testing.T) {
	p := connect(t)
	authority, err := os.ReadFile(p.path("ca.crt"))
	check(t, err)
	check(t, os.Remove(p.path("ca.crt")))
	p.watch(serverName)
	p.mustBeApart(&p.handshakes)
	p.write("ca.crt", string(authority))
	p.mustMeet()
}

// After the network between replicas has recovered, they must meet soon.
func TestAReplicaIsDialledAgainSoon(t *testing.T) {
	p := connect(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	dialled := make(chan time.Time)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_ = connection.Close()
			select {
			case dialled <- time.Now():
			case <-t.Context().Done():
			}
		}
	}()
	p.write("members", fmt.Sprintf("b: %s\n", listener.Addr()))
	p.watch(serverName)
	const tries = 12
	began := <-dialled
	for range tries {
		<-dialled
	}
	// The pauses take nine seconds on machines of any speed; without a bound, they would take 46 s.
	if took := time.Since(began); took > 35*time.Second {
		t.Errorf("%d tries took %s", tries, took)
	}
}

// When the network between two replicas was silent, they must not wait for TCP to give a connection up, at either side.
func TestADeadConnectionIsReplaced(t *testing.T) {
	p := connect(t)
	proxy := startProxy(t, p.serving)
	p.write("members", fmt.Sprintf("b: %s\n", proxy.listener.Addr()))
	p.watch(serverName)
	p.mustMeet()
	proxy.swallow.Store(true)
	await(t, func() bool { _, connected := p.calling.Peers(); return connected == 0 })
	proxy.heal()
	p.mustMeet()
	select {
	case <-proxy.ended:
	case <-time.After(patience):
		t.Error("the serving replica keeps the connection")
	}
}

// proxy passes bytes on, and can swallow those of the connections that are open.
type proxy struct {
	t        *testing.T
	listener net.Listener
	to       string
	swallow  atomic.Bool
	// hasHealed says that new connections swallow nothing.
	hasHealed atomic.Bool
	// ended gets a value when the server has closed a connection that swallows.
	ended chan struct{}
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	p := &proxy{t: t, listener: listener, to: to, ended: make(chan struct{}, 16)}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = from.Close() })
			into, err := new(net.Dialer).DialContext(t.Context(), "tcp", to)
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = into.Close() })
			mayWork := p.hasHealed.Load()
			go p.pass(from, into, mayWork, nil)
			go p.pass(into, from, mayWork, p.ended)
		}
	}()
	return p
}

func (p *proxy) heal() { p.hasHealed.Store(true) }

func (p *proxy) pass(from, into net.Conn, mayWork bool, ended chan<- struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		count, err := from.Read(buffer)
		isSwallowing := p.swallow.Load() && !mayWork
		if err != nil {
			if isSwallowing && ended != nil {
				ended <- struct{}{}
			}
			if !isSwallowing {
				_ = into.Close()
			}
			return
		}
		if !isSwallowing {
			_, _ = into.Write(buffer[:count])
		}
	}
}

func newLine(t *testing.T, options line.Options) *line.Line {
	t.Helper()
	options.Local = local{}
	made, err := line.New(options)
	check(t, err)
	return made
}

func await(t *testing.T, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("not within %s", patience)
		case <-ticker.C:
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Strangers that send nothing but a handshake must not keep their connections.
func TestAConnectionWithoutAStreamIsClosed(t *testing.T) {
	t.Parallel()
	p := connect(t)
	stranger, err := grpc.NewClient(p.serving, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	check(t, err)
	t.Cleanup(func() { _ = stranger.Close() })
	stranger.Connect()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for state := stranger.GetState(); state != connectivity.Ready; state = stranger.GetState() {
		if !stranger.WaitForStateChange(ctx, state) {
			t.Fatal("it cannot connect: ", state)
		}
	}
	if !stranger.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("its connection stays open")
	}
}
