package server_test

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/webhook/server"
)

// unannounced hides how long a body is.
type unannounced struct{ io.Reader }

func TestAReviewIsRefusedForItsSize(t *testing.T) {
	const maxBytes, maxMemory = 1000, 1 << 20
	cases := map[string]struct {
		body   string
		isSent bool
		want   string
	}{
		"as large as allowed": {body: "{" + strings.Repeat("x", maxBytes-1), isSent: true},
		"one byte larger":     {body: "{" + strings.Repeat("x", maxBytes), want: "more than 1000 bytes"},
	}
	for name, test := range cases {
		for how, body := range map[string]io.Reader{"announced": strings.NewReader(test.body), "not announced": unannounced{strings.NewReader(test.body)}} {
			t.Run(name+", "+how, func(t *testing.T) {
				judged := make(chan string, 1)
				w := start(t, server.Options{
					MaxMemory: maxMemory, Reviews: map[string]server.Cost{path: {MaxBytes: maxBytes, ByteCost: 12}},
				}, func(_ http.ResponseWriter, r *http.Request) {
					text, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					judged <- string(text)
				})
				code, refusal, err := w.post(w.client(1), body)
				switch {
				case err != nil:
					t.Fatal(err)
				case test.isSent && code != http.StatusOK:
					t.Errorf("status %d, %s", code, refusal.Message)
				case test.isSent:
					if got := <-judged; got != test.body {
						t.Errorf("judged %q", got)
					}
				case code != http.StatusRequestEntityTooLarge || refusal.Kind != "Status" || refusal.Reason != metav1.StatusReasonRequestEntityTooLarge ||
					!strings.Contains(refusal.Message, test.want) || len(judged) > 0 || w.refused("size") != 1:
					t.Errorf("status %d, %+v; %d were judged; %v are counted", code, refusal, len(judged), w.refused("size"))
				}
			})
		}
	}
}

// holding is a handler that keeps each review until it is released.
type holding struct {
	begun    chan struct{}
	released chan struct{}
	once     sync.Once
}

func newHolding() *holding {
	return &holding{begun: make(chan struct{}), released: make(chan struct{})}
}

func (h *holding) releaseAll() { h.once.Do(func() { close(h.released) }) }

func (h *holding) handle(http.ResponseWriter, *http.Request) {
	h.begun <- struct{}{}
	<-h.released
}

// The memory in use while many clients send bodies as large as they may at once. The handler copies its
// body, as controller-runtime's does.
func TestAFloodOfLargeReviewsStaysWithinTheMemory(t *testing.T) {
	const maxMemory, maxBytes, senders = 64 << 20, 2 << 20, 24
	var judged, highest atomic.Int64
	sample := func() {
		for in := live(); ; {
			if known := highest.Load(); in <= known || highest.CompareAndSwap(known, in) {
				return
			}
		}
	}
	w := start(t, server.Options{MaxMemory: maxMemory, Reviews: map[string]server.Cost{path: {MaxBytes: maxBytes, ByteCost: 12}}}, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		judged.Add(1)
		runtime.GC() // It counts what is in use, here and by all other reviews.
		sample()
		runtime.KeepAlive(body)
	})
	body := append([]byte("{"), bytes.Repeat([]byte("x"), maxBytes-1)...)
	runtime.GC()
	before := live()
	var working sync.WaitGroup
	for number := range senders {
		client := w.client(1 + number%4)
		working.Go(func() {
			for range 3 {
				code, _, err := w.post(client, bytes.NewReader(body))
				if err != nil || code != http.StatusOK && code != http.StatusServiceUnavailable {
					t.Errorf("status %d, %v", code, err)
				}
				sample()
			}
		})
	}
	working.Wait()
	grown := highest.Load() - before
	t.Logf("%d MiB in use, of %d that reviews may take and %d that were sent at once; %d of %d reviews were judged",
		grown>>20, maxMemory>>20, senders*maxBytes>>20, judged.Load(), 3*senders)
	if grown > maxMemory {
		t.Errorf("%d bytes are in use", grown)
	}
	if judged.Load() == 0 {
		t.Error("no review was judged")
	}
}

// live returns the bytes of the heap that were in use when the collector last looked.
func live() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
