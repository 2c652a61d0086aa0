package forrst_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
)

// BenchmarkRouted measures what a routed function costs, with and without a lock, beside
// the lock alone. With a lock it should take no longer than both, and 15 percent.
func BenchmarkRouted(b *testing.B) {
	service := httptest.NewServer(says(`"result":{"ok":true}`))
	b.Cleanup(service.Close)
	f := newFixtureWith(b, routingTo(b, service.URL, time.Minute, nil))
	around := locked(`{"key":"k",` + ttl + `}`)
	for name, body := range map[string]string{
		"bare": envelopeWith("r.f", `,"arguments":{"sku":"X9","n":1}`, ""),
		"lock": envelopeWith("r.f", `,"arguments":{"sku":"X9","n":1}`, around),
		"ping": envelopeWith(ping, "", around),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.locks.Calls()
				f.log.Reset()
				recorder := httptest.NewRecorder()
				f.ServeHTTP(recorder, httptest.NewRequestWithContext(b.Context(), http.MethodPost, forrst.Path, strings.NewReader(body)))
				if recorder.Code != http.StatusOK {
					b.Fatal(recorder.Body.String())
				}
			}
		})
	}
}
