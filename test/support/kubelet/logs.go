package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Logs are those of the containers of one node, which the API server asks for them. Use [ServeLogs] to make
// one. Safe for concurrent use.
type Logs struct {
	server *httptest.Server

	mu    sync.Mutex
	lines map[string][]logLine
}

type logLine struct {
	at   time.Time
	text string
}

// ServeLogs creates a Node, and answers the API server's requests for logs of its Pods as a kubelet does, until
// [Logs.Stop].
func ServeLogs(ctx context.Context, client kubernetes.Interface, node string) (*Logs, error) {
	l := &Logs{lines: map[string][]logLine{}}
	paths := http.NewServeMux()
	paths.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", l.serve)
	l.server = httptest.NewTLSServer(paths)
	if err := CreateNode(ctx, client, node, l.server.Listener.Addr().String()); err != nil {
		l.Stop()
		return nil, err
	}
	return l, nil
}

// CreateNode creates a Node whose kubelet has the address, an IP address and a port.
func CreateNode(ctx context.Context, client kubernetes.Interface, name, address string) error {
	listens, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: listens.Addr().String()}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(listens.Port())}},
		},
	}, metav1.CreateOptions{})
	return err
}

// Stop ends the server. The Node stays.
func (l *Logs) Stop() { l.server.Close() }

// Write adds a line that a container wrote at a time.
func (l *Logs) Write(namespace, pod, container string, at time.Time, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := strings.Join([]string{namespace, pod, container}, "/")
	l.lines[name] = append(l.lines[name], logLine{at, text})
}

func (l *Logs) serve(response http.ResponseWriter, request *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, isKnown := l.lines[strings.TrimPrefix(request.URL.Path, "/containerLogs/")]
	if !isKnown {
		http.NotFound(response, request)
		return
	}
	query := request.URL.Query()
	if tail, err := strconv.Atoi(query.Get("tailLines")); err == nil {
		lines = lines[max(0, len(lines)-tail):]
	}
	var log strings.Builder
	for _, line := range lines {
		if query.Get("timestamps") == "true" {
			fmt.Fprint(&log, line.at.Format(time.RFC3339Nano), " ")
		}
		fmt.Fprintln(&log, line.text)
	}
	text := log.String()
	if limit, err := strconv.Atoi(query.Get("limitBytes")); err == nil {
		text = text[:min(limit, len(text))]
	}
	_, _ = io.WriteString(response, text)
}
