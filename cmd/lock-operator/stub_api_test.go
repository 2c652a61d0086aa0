package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/rules"
)

// stubAPI is an API server that has nothing but the locks that it is told to show. It keeps none of
// them: what the process of the test has in memory is the operator's.
type stubAPI struct {
	*httptest.Server

	// shown are the events of the watch of locks, in order.
	shown chan string
	// watches counts the watches of locks that were opened.
	mu      sync.Mutex
	watches int
}

// groupsOfStub are the resources that the operator finds by discovery.
var groupsOfStub = map[string]string{
	"/api":           `{"kind":"APIVersions","versions":["v1"]}`,
	"/apis":          `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"batch","versions":[{"groupVersion":"batch/v1","version":"v1"}],"preferredVersion":{"groupVersion":"batch/v1","version":"v1"}}]}`,
	"/api/v1":        `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]},{"name":"namespaces","singularName":"namespace","namespaced":false,"kind":"Namespace","verbs":["get","list","watch"]}]}`,
	"/apis/batch":    `{"kind":"APIGroup","apiVersion":"v1","name":"batch","versions":[{"groupVersion":"batch/v1","version":"v1"}],"preferredVersion":{"groupVersion":"batch/v1","version":"v1"}}`,
	"/apis/batch/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"batch/v1","resources":[{"name":"jobs","singularName":"job","namespaced":true,"kind":"Job","verbs":["get","list","watch"]}]}`,
}

func newStubAPI(t *testing.T) *stubAPI {
	t.Helper()
	stub := &stubAPI{shown: make(chan string)}
	stub.Server = httptest.NewServer(stub)
	t.Cleanup(stub.Server.Close)
	return stub
}

// ServeHTTP implements [http.Handler].
func (s *stubAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	isWatch := r.URL.Query().Has("watch")
	answer, isDiscovery := groupsOfStub[r.URL.Path]
	switch {
	case isDiscovery:
		_, _ = io.WriteString(w, answer)
	case r.Method == http.MethodGet && isWatch && strings.HasSuffix(r.URL.Path, "/locks"):
		s.watchLocks(w, r)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/locks"):
		s.create(w, r)
	case r.Method == http.MethodGet && isWatch && !r.URL.Query().Has("sendInitialEvents"):
		<-r.Context().Done()
	case r.Method == http.MethodGet && isWatch:
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","code":400}`)
	case r.Method == http.MethodGet:
		kind := map[string]string{"jobs": "JobList", "pods": "PodList", "locks": "LockList"}[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		version := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path[:strings.LastIndex(r.URL.Path, "/")], "/apis/"), "/api/")
		if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
			kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"kind": kind, "apiVersion": version, "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{},
		})
	default:
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	}
}

// watchLocks sends what is shown until the client leaves.
func (s *stubAPI) watchLocks(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.watches++
	s.mu.Unlock()
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-s.shown:
			if _, err := io.WriteString(w, event); err != nil {
				return
			}
		}
		_ = http.NewResponseController(w).Flush()
	}
}

// openWatches returns how many watches of locks were opened.
func (s *stubAPI) openWatches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// create stores nothing, and answers as if it had.
func (*stubAPI) create(w http.ResponseWriter, r *http.Request) {
	var object map[string]any
	if json.NewDecoder(r.Body).Decode(&object) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	metadata, _ := object["metadata"].(map[string]any)
	metadata["uid"], metadata["resourceVersion"] = "77cf2a0d-7d1e-4b7e-8a7f-000000000000", "1000000"
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(object)
}

// endOfList is the event that ends the initial list of locks.
const endOfList = `{"type":"BOOKMARK","object":{"kind":"Lock","apiVersion":"forrst.dev/v1alpha1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"key":""}}}` + "\n"

// added is the event of a lock that lives for hours.
func added(t *testing.T, number int) string {
	t.Helper()
	lock := rules.Grant("payments", rules.Acquisition{
		Key: fmt.Sprint("billing:report:", number), Owner: fmt.Sprintf("6b0a5f3e-63a5-4f0f-9a53-%012d", number),
		Holder: "system:serviceaccount:payments:worker", TTL: 12 * time.Hour,
	}, rules.Limits{DefaultTTL: time.Hour, MaxTTL: v1alpha1.MaxTTL}, time.Now())
	lock.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Lock"}
	lock.UID, lock.ResourceVersion, lock.Generation = types.UID(fmt.Sprintf("77cf2a0d-7d1e-4b7e-8a7f-%012d", number)), fmt.Sprint(100+number), 1
	lock.CreationTimestamp = metav1.Now()
	lock.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "lock-operator", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v1alpha1.GroupVersion.String(),
		Time: &lock.CreationTimestamp, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{".":{},"f:acquireTime":{},"f:expireTime":{},"f:holder":{},"f:key":{},"f:owner":{},"f:renewTime":{},"f:scope":{},"f:ttl":{}}}`),
	}}
	text, err := json.Marshal(lock)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"type":"ADDED","object":%s}`+"\n", text)
}

// show sends an event of the watch.
func (s *stubAPI) show(ctx context.Context, event string) error {
	select {
	case s.shown <- event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startOperator runs the program in this process, with the flags besides those that keep it apart.
func startOperator(t *testing.T, api *stubAPI, flags ...string) ctrl.Manager {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	former := metrics.Registry
	metrics.Registry = prometheus.NewRegistry()
	t.Cleanup(func() { metrics.Registry = former })
	settings, err := parse(append([]string{
		"--leader-elect=false", "--operator-user=operator", "--health-probe-bind-address=0",
		"--facade-auth=none", "--facade-bind-address=127.0.0.1:0", "--facade-shutdown-delay=0s",
	}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	settings.audit = audit.OrNowhere(nil)
	manager, err := newManager(t.Context(), &rest.Config{Host: api.URL}, settings)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return manager
}
