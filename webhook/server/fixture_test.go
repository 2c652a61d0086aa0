package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"forrst.dev/lock-operator/hack/admissionclient"
	"forrst.dev/lock-operator/webhook/server"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	// A file that cannot be read leaves a queue of its reader. The operator ends then.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"))
}

// path is that of the handler of a test.
const path = "/review"

// world is a server that is running.
type world struct {
	t        *testing.T
	url      string
	roots    *x509.CertPool
	registry *prometheus.Registry
	served   *server.Server
	// stop has the server drain, and then end; end only the latter.
	stop, end func()
}

// start runs a server with the handler until the test ends.
func start(t *testing.T, options server.Options, handler http.HandlerFunc) *world {
	t.Helper()
	w := &world{t: t, roots: x509.NewCertPool(), registry: prometheus.NewRegistry()}
	options.CertDir, options.Metrics = servingFiles(t), w.registry
	certificate, err := os.ReadFile(filepath.Join(options.CertDir, "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	w.roots.AppendCertsFromPEM(certificate)
	options.Address = freeAddress(t)
	w.url = "https://" + options.Address + path
	if options.Reviews == nil {
		options.Reviews = map[string]server.Cost{path: {MaxBytes: 1 << 20, ByteCost: 12}}
	}
	served, err := server.New(options)
	if err != nil {
		t.Fatal(err)
	}
	served.Register(path, handler)
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	var draining sync.WaitGroup
	w.served, w.end = served, end
	w.stop = func() {
		draining.Go(func() {
			served.Drain()
			end()
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- served.Start(ctx) }()
	t.Cleanup(func() {
		draining.Wait()
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for served.StartedChecker()(nil) != nil {
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
	}
	return w
}

// awaitUnready waits until the server says that it is to stop.
func (w *world) awaitUnready() {
	for w.served.StartedChecker()(nil) == nil {
		runtime.Gosched()
	}
}

// serving is the certificate of all servers, with its key.
var serving = sync.OnceValues(func() (files map[string][]byte, err error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	return map[string][]byte{"tls.crt": certificate, "tls.key": key}, err
})

// servingFiles returns a folder with the certificate and the key of a server.
func servingFiles(t *testing.T) string {
	t.Helper()
	files, err := serving()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

// from returns the configuration of a client with an address of its own on this machine, which is a
// network of its own.
func (w *world) from(number int) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0." + strconv.Itoa(number))}}
}

// client returns one at the address of the number that presents the certificate, if any.
func (w *world) client(number int, certificates ...tls.Certificate) *http.Client {
	transport := &http.Transport{
		DialContext:     w.from(number).DialContext,
		TLSClientConfig: &tls.Config{RootCAs: w.roots, Certificates: certificates, MinVersion: tls.VersionTLS12},
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// post returns the answer: its status, and what a refusal says.
func (w *world) post(client *http.Client, body io.Reader) (code int, refusal metav1.Status, err error) {
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url, body)
	if err != nil {
		return 0, refusal, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, refusal, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = json.Unmarshal(text, &refusal)
	}
	return response.StatusCode, refusal, err
}

// refused returns the value of the metric.
func (w *world) refused(reason string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "lock_operator_webhook_refused_total" && metric.GetLabel()[0].GetValue() == reason {
				return metric.GetCounter().GetValue()
			}
		}
	}
	w.t.Fatalf("no metric counts %s", reason)
	return 0
}

// authority issues a certificate for the name of [admissionclient.Name].
func authority(t *testing.T) (files admissionclient.Files, issued tls.Certificate) {
	t.Helper()
	files, err := admissionclient.Write(t.TempDir(), admissionclient.AnyWebhook)
	if err != nil {
		t.Fatal(err)
	}
	issued, err = tls.LoadX509KeyPair(files.Certificate, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return files, issued
}

func ok(w http.ResponseWriter, r *http.Request) {
	size, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, size)
}
