package robustness_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"forrst.dev/lock-operator/facade/peers"
)

// peersServerName is the name in the certificate of the replicas.
const peersServerName = "replicas.robustness"

// peering is between replicas that share their lines: the way from each to each other one, and what each believes
// about who is ready.
type peering struct {
	folder string
	// ways are by the replica that calls and the one that it calls.
	ways [][]*way

	// mu guards the files.
	mu sync.Mutex
}

// way leads the connections of one replica to another one.
type way struct {
	*connections

	mu sync.Mutex
	to *replica
}

func nameOf(number int) string { return fmt.Sprintf("replica-%d", number) }

func newPeering(ctx context.Context, admin *rest.Config, dir string, replicas int) (*peering, error) {
	p := &peering{folder: filepath.Join(dir, "peers")}
	if err := os.Mkdir(p.folder, 0o700); err != nil {
		return nil, err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(peersServerName, nil, nil)
	if err != nil {
		return nil, err
	}
	token, err := peersToken(ctx, admin)
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "token": token} {
		if err := os.WriteFile(filepath.Join(p.folder, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	for from := range replicas {
		p.ways = append(p.ways, nil)
		for range replicas {
			listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			made := &way{connections: newConnections(listener)}
			go made.serve()
			p.ways[from] = append(p.ways[from], made)
		}
	}
	for from := range replicas {
		if err := p.tell(from, nil); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// peersToken returns a token of the operator for its replicas.
func peersToken(ctx context.Context, admin *rest.Config) ([]byte, error) {
	clientset, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	const namespace, account = "forrst-system", "lock-operator" // as in testenv.OperatorUser
	accounts := clientset.CoreV1().ServiceAccounts(namespace)
	_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	issued, err := accounts.CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{peers.Audience}, ExpirationSeconds: new(int64(24 * 60 * 60))},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return []byte(issued.Status.Token), nil
}

// tell makes a replica believe that all are ready but the missing ones.
func (p *peering) tell(replica int, missing func(number int) bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var text strings.Builder
	for number, way := range p.ways[replica] {
		if missing == nil || !missing(number) {
			fmt.Fprintf(&text, "%s: %s\n", nameOf(number), way.Addr())
		}
	}
	path := filepath.Join(p.folder, nameOf(replica)+".yaml")
	if err := os.WriteFile(path+".next", []byte(text.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".next", path)
}

// leadTo has the ways to a replica lead to its processes.
func (p *peering) leadTo(number int, replica *replica) {
	for _, ways := range p.ways {
		ways[number].mu.Lock()
		ways[number].to = replica
		ways[number].mu.Unlock()
	}
}

// around returns the ways from and to a replica.
func (p *peering) around(number int) (from, to []*way) {
	for other := range p.ways {
		if other != number {
			from, to = append(from, p.ways[number][other]), append(to, p.ways[other][number])
		}
	}
	return from, to
}

func (p *peering) stop() {
	for _, ways := range p.ways {
		for _, way := range ways {
			way.swallow(holes{})
			_ = way.Close()
			way.reset()
		}
	}
}

// serve connects what comes with the other replica until the way is closed.
func (w *way) serve() {
	for {
		accepted, err := w.Accept()
		if err != nil {
			return
		}
		go w.connect(accepted)
	}
}

// connect passes on until one side ends.
func (w *way) connect(accepted net.Conn) {
	defer func() { _ = accepted.Close() }()
	w.mu.Lock()
	to := w.to
	w.mu.Unlock()
	if to == nil {
		return
	}
	dialed, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", *to.peersAddress.Load())
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

const eachPeering = "peering of each"

// peerFaults are those between replicas that share lines. All requests to the API server get through.
var peerFaults = []fault{resetPeers, partitionPeers, partitionPeersForLong, deafPeer, splitView, splitViewForLong}

// faultsOfHomes are the names of those in which a replica may get no answer from the home of a line.
var faultsOfHomes = namesOf(append([]fault{killReplica, stopReplica, suspendReplica}, peerFaults...))

func namesOf(faults []fault) (names []string) {
	for _, each := range faults {
		names = append(names, each.name)
	}
	return names
}

// resetPeers resets the connections from and to a replica.
var resetPeers = fault{"reset peers", 0, eachPeering, func(ctx context.Context, b breaking) error {
	from, to := b.peering.around(b.number)
	for range 1 + b.random.IntN(5) {
		for _, way := range append(from, to...) {
			way.reset()
		}
		b.pause(ctx, 10*time.Millisecond, 300*time.Millisecond)
	}
	return nil
}}

var (
	partitionPeers        = partitioning("partition peers", seconds)
	partitionPeersForLong = partitioning("partition peers for long", func(ctx context.Context, b breaking) { b.minutes(ctx) })
)

// partitioning cuts a replica off from the others. What was sent is delivered afterwards, or lost.
func partitioning(name string, length func(context.Context, breaking)) fault {
	return fault{name, 0, eachPeering, func(ctx context.Context, b breaking) error {
		from, to := b.peering.around(b.number)
		b.cut(ctx, append(from, to...), holes{in: true, out: true}, length)
		return nil
	}}
}

// deafPeer lets a replica be heard by the others, and not hear what they answer.
var deafPeer = fault{"a peer that hears nothing", 0, eachPeering, func(ctx context.Context, b breaking) error {
	from, _ := b.peering.around(b.number)
	b.cut(ctx, from, holes{out: true}, seconds)
	return nil
}}

func (b breaking) cut(ctx context.Context, ways []*way, directions holes, length func(context.Context, breaking)) {
	for _, way := range ways {
		way.swallow(directions)
	}
	length(ctx, b)
	isLost := b.random.IntN(2) == 0
	for _, way := range ways {
		if isLost {
			way.reset()
		}
		way.swallow(holes{})
	}
}

var (
	splitView        = splitting("a split view of who is ready", seconds)
	splitViewForLong = splitting("a split view of who is ready for long", func(ctx context.Context, b breaking) { b.minutes(ctx) })
)

// splitting lets replicas believe different things: one takes itself for the only one, or lacks another, or is missing
// where others look, or takes itself for not ready. So several are home to one line.
func splitting(name string, length func(context.Context, breaking)) fault {
	return fault{name, 0, eachPeering, func(ctx context.Context, b breaking) error {
		views := []func(number int) bool{
			func(number int) bool { return number != b.number },
			func(number int) bool { return number == (b.number+1)%len(b.replicas) },
			func(number int) bool { return number == b.number },
			func(int) bool { return true },
		}
		if err := b.peering.tell(b.number, views[b.random.IntN(len(views))]); err != nil {
			return err
		}
		length(ctx, b)
		return b.peering.tell(b.number, nil)
	}}
}
