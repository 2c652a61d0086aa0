//go:build !race

package forrst_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// maxBytesPerBlockedCaller is what a waiting caller may cost the façade. What the
// engine needs comes on top, up to 64 KiB together.
const maxBytesPerBlockedCaller = 40 << 10

func TestMemoryOfBlockedCallers(t *testing.T) {
	cases := map[string]struct {
		callers int
		body    string
	}{
		"extension":              {1000, envelopeWith(ping, "", locked(`{"key":"k","scope":"global",`+ttl+`,"block":{"value":60}}`))},
		"function":               {1000, envelopeWith(wire.Acquire, arguments(`"key":"k","block":{"value":60}`), "")},
		"function, much to read": {100, envelopeWith(wire.Acquire, arguments(`"key":"k","block":{"value":60},"unknown":"`+strings.Repeat("x", 128<<10)+`"`), "")},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			locks := &patientLocks{waiting: make(chan struct{}, test.callers)}
			s := serve(t, served{Settings: testfacade.Settings{Locks: locks, Namespace: namespace}}, time.Minute)
			text := fmt.Sprintf("POST /forrst HTTP/1.1\r\nHost: x\r\nUser-Agent: test/1.0\r\nAccept: */*\r\nAuthorization: Bearer %s\r\n"+
				"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", strings.Repeat("t", 1000), len(test.body), test.body)
			request := []byte(text)
			connections := make([]net.Conn, test.callers)
			before := memoryInUse()
			for i := range connections {
				connections[i] = dial(t, s)
				if _, err := connections[i].Write(request); err != nil {
					t.Fatal(err)
				}
				<-locks.waiting
			}
			each := (memoryInUse() - before) / float64(test.callers)
			t.Logf("%.0f bytes for each blocked caller", each)
			if each > maxBytesPerBlockedCaller {
				t.Errorf("a blocked caller costs %.0f bytes, want at most %d", each, maxBytesPerBlockedCaller)
			}
			s.stop()
			for _, connection := range connections {
				response, err := http.ReadResponse(bufio.NewReader(connection), nil)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				if response.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("a blocked caller got status %d", response.StatusCode)
				}
			}
			if err := <-s.ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// By default, all of them may be at one address.
func TestTenThousandCallersWait(t *testing.T) { wantBlocked(t, 10_000, 10) }

// memoryInUse counts stacks too. They shrink with the second collection only.
func memoryInUse() float64 {
	var stats runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc + stats.StackInuse)
}
