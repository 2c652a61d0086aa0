package server

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// What a client gives up, as an API server does whose user has gone, was not refused.
func TestAReviewThatItsClientAbandonsIsNotRefused(t *testing.T) {
	const arriving, large = 1000, 3 << 10 // Of the large ones, one at a time finds memory.
	cases := map[string]struct {
		size, sent int
		// then is what happens after the review, or its beginning, was sent.
		then func(sender *tls.Conn) error
		want string
	}{
		"while it sends": {arriving, arriving / 2, func(sender *tls.Conn) error { return sender.Close() }, "[true]"},
		"while the review waits": {large, large, func(sender *tls.Conn) error {
			synctest.Wait()
			return sender.Close()
		}, "[true]"},
		"not: it is too slow": {arriving, arriving / 2, func(*tls.Conn) error {
			time.Sleep(reviewTimeout + time.Second) //nolint:forbidigo // Only the fake clock moves.
			return nil
		}, "[false]"},
		"not: it waits for too long": {large, large, func(*tls.Conn) error {
			time.Sleep(2 * maxWait) //nolint:forbidigo // Only the fake clock moves.
			return nil
		}, "[false]"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var released chan struct{}
			serve(t, Options{MaxMemory: 50 << 10, ClientCA: "ca.crt", MaxConnections: 4}, func(http.ResponseWriter, *http.Request) { <-released }, func(b *bubble) {
				t := b.t
				released = make(chan struct{})
				var mu sync.Mutex
				var told []bool
				var closing []net.Conn
				b.OnRefused(func(r Refused) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, r.IsAbandoned)
				})
				send := func(size, sent int) *tls.Conn {
					made, err := b.connect(1)
					if err != nil {
						t.Fatal(err)
					}
					// Before the server closes it, which would wait for a reader of its farewell.
					closing = append(closing, made.NetConn())
					if _, err := io.WriteString(made, header(size)+reviewOf("a", size)[:sent]); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					return made
				}
				send(large, large) // It is judged until the end.
				if err := test.then(send(test.size, test.sent)); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				mu.Lock()
				if got := fmt.Sprint(told); got != test.want {
					t.Errorf("told %s, want %s", got, test.want)
				}
				mu.Unlock()
				want := 0.0
				if name == "not: it waits for too long" {
					want = 1
				}
				if got := testutil.ToFloat64(b.refused.WithLabelValues(noMemory)); got != want {
					t.Errorf("%v are counted as refused for want of memory, want %v", got, want)
				}
				close(released)
				for _, made := range closing {
					_ = made.Close() // It may be closed already.
				}
			})
		})
	}
}
