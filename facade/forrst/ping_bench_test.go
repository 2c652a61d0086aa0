package forrst_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// echo decodes a JSON object and sends it back: what a service of any kind has to do.
func echo(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// BenchmarkPing compares a ping with an echo, both over HTTP with 16 clients. The façade
// must do at least half as many.
func BenchmarkPing(b *testing.B) {
	const clients = 16
	f := newFixtureWith(b, func(config *testfacade.Settings) { config.Clock = clock.RealClock{} })
	for name, handler := range map[string]http.Handler{"echo": http.HandlerFunc(echo), "facade": f} {
		b.Run(name, func(b *testing.B) {
			server := httptest.NewServer(handler)
			defer server.Close()
			transport := &http.Transport{MaxIdleConnsPerHost: clients, DialContext: new(net.Dialer).DialContext}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			body := envelopeWith(ping, `,"version":"1.0.0"`, "")
			// There are GOMAXPROCS times as many goroutines.
			b.SetParallelism(max(1, clients/runtime.GOMAXPROCS(0)))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL+forrst.Path, strings.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					request.Header.Set("Content-Type", "application/json")
					response, err := client.Do(request)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
			})
		})
	}
}
