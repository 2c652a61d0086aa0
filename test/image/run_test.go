package image

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/test/support/container"
	"forrst.dev/lock-operator/test/support/testenv"
)

const (
	// patience bounds what the test waits for.
	patience = time.Minute
	facade   = "lock-operator-facade"
)

// A façade of the image serves a lock on an API server, with the rights and the memory of config/.
func TestTheImageServesALock(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	environment, err := testenv.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	user := "system:serviceaccount:" + testenv.OperatorNamespace + ":" + testenv.Installed(facade)
	_, kubectl, err := environment.User(user, testenv.OperatorGroups...)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := readableFile(t, kubectl.Kubeconfig())

	store, err := container.NewStore()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	name, err := store.Load(t.Context(), filepath.Join(folder, "lock-operator.tar"))
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	memory, log := shippedMemory(t), &buffer{}
	running, err := store.Start(container.Options{
		Name: facade, Image: name, Network: "host", Memory: memory, Log: log,
		Mounts: map[string]string{"/kubeconfig": kubeconfig},
		Arguments: []string{
			"--components=facade", "--kubeconfig=/kubeconfig", "--leader-election-namespace=" + testenv.OperatorNamespace,
			// It takes no tokens without TLS.
			"--facade-auth=none", "--facade-bind-address=" + address, "--facade-shutdown-delay=0s",
			"--health-probe-bind-address=0", "--metrics-bind-address=0",
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	awaitReady(t, running, "http://"+address+"/readyz", log)
	const lock = "/v1/namespaces/default/locks/billing:close"
	answer, err := http.Post("http://"+address+lock, "application/json", strings.NewReader(`{"ttl_seconds": 300}`)) //nolint:noctx // loopback answers at once
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		t.Fatalf("taking a lock: %s; the log is:\n%s", answer.Status, log)
	}
	if found, err := kubectl.Run(t.Context(), "", "get", "lock", "billing--close", "--namespace=default", "-o", "name"); err != nil || !strings.Contains(found, "billing--close") {
		t.Errorf("kubectl finds %q, error = %v", found, err)
	}
	// The program, too, has to know the limit, or the kernel would kill it.
	if want := fmt.Sprintf(`"GOMEMLIMIT":%d`, memory*9/10); !strings.Contains(log.String(), want) {
		t.Errorf("the log has no %s:\n%s", want, log)
	}
	if err := running.Stop(context.WithoutCancel(t.Context()), patience); err != nil {
		t.Errorf("%v; the log is:\n%s", err, log)
	}
}

// shippedMemory returns the limit of the façade in config/.
func shippedMemory(t *testing.T) int64 {
	t.Helper()
	manifest, err := os.ReadFile("../../config/manager/facade.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.Unmarshal(manifest, &deployment); err != nil {
		t.Fatal(err)
	}
	limit := deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Memory()
	if limit.IsZero() {
		t.Fatal("the façade has no memory limit")
	}
	return limit.Value()
}

// readableFile returns a copy of the file that the user of the image may read.
func readableFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	readable := filepath.Join(t.TempDir(), filepath.Base(path))
	// The folder above is root's alone.
	if err := os.WriteFile(readable, content, 0o444); err != nil {
		t.Fatal(err)
	}
	return readable
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func awaitReady(t *testing.T, running *container.Container, url string, log fmt.Stringer) {
	t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		answer, err := http.Get(url) //nolint:noctx // loopback answers at once
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-running.Exited():
			t.Fatalf("the container has ended; its log is:\n%s", log)
		case <-deadline:
			t.Fatalf("the façade is not ready (%v); its log is:\n%s", err, log)
		case <-ticker.C:
		}
	}
}

// buffer is a [bytes.Buffer] that is safe for concurrent use.
type buffer struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.String()
}
