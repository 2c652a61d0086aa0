package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit/auditlog"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// echo is an API server that has one lock and takes every write at once.
type echo struct {
	mu      sync.Mutex
	version int
	stored  []byte
	// released is when the last release began, and answered when the last request was answered.
	released, answered atomic.Int64
	// untilAsked is the sum of the times from a release to its request.
	untilAsked atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (e *echo) RoundTrip(request *http.Request) (*http.Response, error) {
	if released := e.released.Swap(0); released != 0 {
		e.untilAsked.Add(int64(time.Since(epoch)) - released)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	status, former := http.StatusOK, `"resourceVersion":"`+strconv.Itoa(e.version)+`"`
	next := `"resourceVersion":"` + strconv.Itoa(e.version+1) + `"`
	var sent []byte
	if request.Body != nil {
		var err error
		if sent, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
	}
	text := []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	switch {
	case request.Method == http.MethodPost && e.stored != nil:
		status, text = http.StatusConflict, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`)
	case request.Method != http.MethodPost && e.stored == nil:
		status, text = http.StatusNotFound, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case request.Method == http.MethodGet:
		text = e.stored
	case !bytes.Contains(sent, []byte(former)) && request.Method != http.MethodPost:
		status, text = http.StatusConflict, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
	case request.Method == http.MethodDelete:
		e.stored = nil
	default:
		e.version++
		if request.Method == http.MethodPost {
			former, next = `"metadata":{`, fmt.Sprintf(`"metadata":{"uid":"550e8400-e29b-41d4-a716-%012d",%s,`, e.version, next)
		}
		e.stored = bytes.Replace(sent, []byte(former), []byte(next), 1)
		text = e.stored
	}
	answer := &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
		Body: io.NopCloser(bytes.NewReader(text)),
	}
	e.answered.Store(int64(time.Since(epoch)))
	return answer, nil
}

var epoch = time.Now()

// BenchmarkHandOff measures hand-offs between callers that wait for one lock: besides the time of a whole
// one, from the release to its request, and from the answer to the caller who waited for it.
func BenchmarkHandOff(b *testing.B) {
	server := &echo{}
	config := &rest.Config{Host: "http://api.invalid"}
	objects, err := engine.NewObjectClient(config, &http.Client{Transport: server})
	if err != nil {
		b.Fatal(err)
	}
	log, err := auditlog.New(auditlog.Options{Writer: io.Discard, Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = log.Close(context.WithoutCancel(b.Context())) }()
	running, err := engine.New(engine.Options{Objects: objects.Locks, Limits: rules.DefaultLimits(), IsValidated: true, Audit: log})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- running.Start(ctx) }()

	const callers = 16
	var left, toGrant atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for number := range callers {
		request := by(fmt.Sprintf("550e8400-e29b-41d4-a716-4466554400%02d", number))
		request.Wait = lock.WaitForever
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := running.Acquire(ctx, "default", request); err != nil {
					b.Error(err)
					return
				}
				toGrant.Add(int64(time.Since(epoch)) - server.answered.Load())
				server.released.Store(int64(time.Since(epoch)))
				deadline, cancel := context.WithTimeout(ctx, time.Minute)
				err := running.Release(deadline, "default", key, lock.Proof{Owner: request.Owner, Holder: request.Holder})
				cancel()
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(toGrant.Load())/float64(b.N), "ns-to-grant/op")
	b.ReportMetric(float64(server.untilAsked.Load())/float64(b.N), "ns-to-request/op")
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
