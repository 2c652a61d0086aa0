package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/facade/peers"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/line"
)

// idleEngine is an engine in whose lines none waits.
type idleEngine struct{ line.Local }

func (idleEngine) IsRunning() bool { return true }

func (idleEngine) OnRelease(func(context.Context, *v1alpha1.Lock)) {}

// A replica that cannot serve the others does not go on to ask them.
func TestTheSharedLineEndsWhenAPartFails(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close() // It cannot be served from.
	shared, err := line.New(line.Options{Local: idleEngine{}, Self: "a"})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	watch, err := peers.NewWatch(peers.WatchOptions{
		Source: peers.FromFile(filepath.Join(folder, "members"), clock.RealClock{}, logr.Discard()), Line: shared,
		TokenFile: filepath.Join(folder, "token"), AuthorityFile: filepath.Join(folder, "ca.crt"), ServerName: "facade",
	})
	if err != nil {
		t.Fatal(err)
	}
	service, err := peers.NewService(peers.Options{
		Line: shared, Listener: listener, Access: new(auth.Access), User: "facade",
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none") },
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- (&sharedLine{Line: shared, service: service, watch: watch}).Start(t.Context()) }()
	select {
	case err := <-ended:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

// startWithPeers makes the manager of a façade that shares its lines. What asks for the own user name goes to self.
func startWithPeers(ctx context.Context, t *testing.T, self http.HandlerFunc) error {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	former := metrics.Registry
	metrics.Registry = prometheus.NewRegistry()
	t.Cleanup(func() { metrics.Registry = former })
	stub := newStubAPI(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
			self(w, r)
			return
		}
		stub.ServeHTTP(w, r)
	}))
	t.Cleanup(api.Close)
	settings, err := parse("--components=facade", "--facade-bind-address=127.0.0.1:0", "--health-probe-bind-address=0",
		"--facade-tls-cert-file=tls.crt", "--facade-tls-key-file=tls.key", "--leader-election-namespace=forrst-system",
		"--peers-bind-address=127.0.0.1:0", "--peers-replica=a", "--peers-token-file=token", "--peers-authority-file=ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	settings.audit = audit.OrNowhere(nil)
	ended := make(chan error, 1)
	go func() {
		_, err := newManager(ctx, &rest.Config{Host: api.URL}, settings)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the start goes on")
		return nil
	}
}

// A Pod that is to end would be killed, if the start went on for as long as the API server cannot tell the own name.
func TestTheStartEndsWhileTheOwnNameIsNotKnown(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	asked := false
	err := startWithPeers(ctx, t, func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		stop()
		http.Error(w, "away", http.StatusServiceUnavailable)
	})
	if err == nil || !asked {
		t.Errorf("it ended with %v, asked for its name %t", err, asked)
	}
}

// An alert fires if a replica has found no replica at all, not even itself.
func TestAReplicaCountsThoseThatItKnows(t *testing.T) {
	if err := startWithPeers(t.Context(), t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"facade"}}}`)
	}); err != nil {
		t.Fatal(err)
	}
	if err := testutil.GatherAndCompare(metrics.Registry, strings.NewReader(`
		# HELP lock_operator_facade_peers Other replicas of the façade that this one shares lines with. 0 without --peers-bind-address.
		# TYPE lock_operator_facade_peers gauge
		lock_operator_facade_peers{state="connected"} 0
		lock_operator_facade_peers{state="known"} 0
		lock_operator_facade_peers{state="ready"} 0
	`), "lock_operator_facade_peers"); err != nil {
		t.Error(err)
	}
}
