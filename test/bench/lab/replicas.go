package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"forrst.dev/lock-operator/test/bench/measure"
)

// peersAudience is the audience of the tokens that replicas show each other.
const peersAudience = "peers.lock-operator.forrst.dev"

// replicasName is the name in the certificate of the replicas.
const replicasName = "replicas.bench"

// Replicas are façades that share their lines, if there are several. They serve TLS, and everything to everybody.
type Replicas struct {
	// Addresses are those of their doors.
	Addresses []string
	// TLS is what their clients need.
	TLS *tls.Config

	processes []*Facade
	folder    string
}

// StartReplicas starts them and waits until each has met all others. The caller stops them.
func (l *Lab) StartReplicas(ctx context.Context, number int) (*Replicas, error) {
	folder, err := os.MkdirTemp("", "lock-operator-replicas-")
	if err != nil {
		return nil, err
	}
	r := &Replicas{folder: folder}
	if err := r.start(ctx, l, number); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

func (r *Replicas) start(ctx context.Context, l *Lab, number int) error {
	certificate, key, err := cert.GenerateSelfSignedCertKey(replicasName, nil, nil)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	r.TLS = &tls.Config{RootCAs: roots, ServerName: replicasName, MinVersion: tls.VersionTLS13}
	token, err := l.peersToken(ctx)
	if err != nil {
		return err
	}
	var members strings.Builder
	flags := make([][]string, number)
	for index := range flags {
		flags[index] = []string{"--facade-auth=none", "--facade-tls-cert-file=" + r.path("tls.crt"), "--facade-tls-key-file=" + r.path("tls.key")}
		if number == 1 {
			continue
		}
		address, err := FreeAddress(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(&members, "replica-%d: %s\n", index, address)
		flags[index] = append(flags[index], "--peers-bind-address="+address, "--peers-server-name="+replicasName, "--peers-file="+r.path("members"),
			fmt.Sprintf("--peers-replica=replica-%d", index), "--peers-token-file="+r.path("token"), "--peers-authority-file="+r.path("tls.crt"))
	}
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "token": []byte(token), "members": []byte(members.String())} {
		if err := os.WriteFile(r.path(name), content, 0o600); err != nil {
			return err
		}
	}
	logs := make([]*log, number)
	for index := range flags {
		logs[index] = &log{}
		process, err := startFacade(ctx, l.Options.Operator, l.Cluster.OperatorKubeconfig(), flags[index], nil, logs[index])
		if err != nil {
			return err
		}
		r.processes, r.Addresses = append(r.processes, process), append(r.Addresses, process.Address)
	}
	return r.await(ctx, logs)
}

// peersToken is one of the operator's service account.
func (l *Lab) peersToken(ctx context.Context) (string, error) {
	clientset, err := kubernetes.NewForConfig(l.Admin)
	if err != nil {
		return "", err
	}
	token, err := clientset.CoreV1().ServiceAccounts("forrst-system").CreateToken(ctx, "lock-operator", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{peersAudience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return token.Status.Token, nil
}

// await returns when all replicas serve and have met.
func (r *Replicas) await(ctx context.Context, logs []*log) error {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	met := regexp.MustCompile("Sharing lines" + strings.Repeat(".*replica-[0-9]+", len(r.processes)))
	for index, address := range r.Addresses {
		for !r.serves(ctx, address) || len(r.processes) > 1 && !logs[index].contains(met) {
			if err := measure.WaitUntil(ctx, time.Now().Add(startPoll)); err != nil {
				return fmt.Errorf("wait for replica %d: %w: %s", index, err, logs[index].text())
			}
		}
	}
	return nil
}

func (r *Replicas) serves(ctx context.Context, address string) bool {
	connection, err := (&tls.Dialer{Config: r.TLS}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	return connection.Close() == nil
}

func (r *Replicas) path(name string) string { return filepath.Join(r.folder, name) }

// Dial connects a client to one of the replicas in turn.
func (r *Replicas) Dial(ctx context.Context, client int) (net.Conn, string, error) {
	address := r.Addresses[client%len(r.Addresses)]
	connection, err := (&tls.Dialer{Config: r.TLS}).DialContext(ctx, "tcp", address)
	return connection, address, err
}

// Pid is the process of the first replica.
func (r *Replicas) Pid() int { return r.processes[0].Command.Process.Pid }

// Stop ends them.
func (r *Replicas) Stop() {
	for _, process := range r.processes {
		process.Stop()
	}
	_ = os.RemoveAll(r.folder) // what is left is of no use
}

// log keeps what a process writes.
type log struct {
	mu      sync.Mutex
	written bytes.Buffer
}

// Write implements [io.Writer].
func (l *log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written.Write(text)
}

func (l *log) contains(what *regexp.Regexp) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return what.Match(l.written.Bytes())
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written.String()
}
