//go:build !race

package server

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/net/http2/hpack"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/limits"
)

// TestMemoryOfRequestsWhoseAnswersAreNotTaken sends as much with each as is let through.
func TestMemoryOfRequestsWhoseAnswersAreNotTaken(t *testing.T) {
	const streams, connections = 200, 2
	field := func(size, number int) hpack.HeaderField {
		return hpack.HeaderField{Name: fmt.Sprintf("x-%0*d", size, number), Value: "", Sensitive: true}
	}
	for name, test := range map[string]struct{ fields, size, most int }{
		"few fields":        {0, 0, UnauthenticatedRequestBytes - maxUnreadBytes},
		"as many as may be": {maxHeaderFields, 80, UnauthenticatedRequestBytes - maxUnreadBytes},
		"too many":          {maxHeaderFields * 4, 2, 20 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			address := serveLimited(t, newRequests(10_000, 10_000, newLimiter(t, limits.Limits{}), clock.RealClock{}), short)
			var fields []hpack.HeaderField
			for number := range test.fields {
				fields = append(fields, field(test.size, number))
			}
			before := memoryInUse()
			var all []*http2Client
			for range connections {
				all = append(all, stuck(t, "127.0.0.1", address, streams, fields...))
			}
			each := (memoryInUse() - before) / (streams * connections)
			runtime.KeepAlive(all)
			t.Logf("%.0f bytes for each request", each)
			if each > float64(test.most) {
				t.Errorf("a request costs %.0f bytes, want at most %d", each, test.most)
			}
		})
	}
}

func memoryInUse() float64 {
	var stats runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc + stats.StackInuse)
}
