package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestACycleThatTheEndOfATurnInterruptsCountsInPart(t *testing.T) {
	for countsParts, want := range map[bool]float64{false: 2, true: 2.25} {
		synctest.Test(t, func(t *testing.T) {
			slow := client{acquire: func(ctx context.Context, _ string) error { return waitUntil(ctx, time.Now().Add(4*time.Second)) }}
			turn := &turn{clients: []client{slow}, key: func(int) string { return "" }, length: 9 * time.Second, countsParts: countsParts}
			measured, err := turn.run(t.Context())
			if err != nil || measured.cycles != want || len(measured.latencies) != 3 {
				t.Errorf("counting parts %t, nine seconds of cycles of four have %v, want %v: %v", countsParts, measured.cycles, want, err)
			}
		})
	}
}

func TestAHandOffIsFromAReleaseToTheNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := make(chan struct{}, 1)
		each := client{
			acquire: func(context.Context, string) error {
				lock <- struct{}{}
				return nil
			},
			release: func(ctx context.Context, _ string) error {
				err := waitUntil(ctx, time.Now().Add(time.Second)) // what a release takes
				<-lock
				return err
			},
		}
		turn := &turn{clients: []client{each, each}, key: func(int) string { return "" }, hold: 2 * time.Second, length: 8 * time.Second}
		measured, err := turn.run(t.Context())
		if err != nil || len(measured.handOffs) == 0 {
			t.Fatalf("%d hand-offs: %v", len(measured.handOffs), err)
		}
		for _, took := range measured.handOffs {
			if took != time.Second {
				t.Errorf("a hand-off took %s, want 1s", took)
			}
		}
		// These take a second by themselves.
		alone := client{acquire: func(ctx context.Context, _ string) error { return waitUntil(ctx, time.Now().Add(time.Second)) }}
		turn.clients = []client{alone, alone}
		if measured, err = turn.run(t.Context()); err != nil || len(measured.handOffs) != 0 || len(measured.acquires) == 0 {
			t.Errorf("%d of %d acquires are hand-offs: %v", len(measured.handOffs), len(measured.acquires), err)
		}
	})
}

func TestAConnectionSendsAndReadsHTTP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = io.Copy(w, r.Body) // an echo
	}))
	defer server.Close()
	f := facade{addresses: []string{strings.TrimPrefix(server.URL, "http://")}}
	connection, err := f.dial(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.hangUp()
	for range 2 {
		if err := connection.call(t.Context(), `{"acquired":true}`, `"acquired":true`); err != nil {
			t.Error(err)
		}
		if body, err := connection.do(t.Context(), http.MethodDelete, "/", "X-Lock-Token: a\r\n", ""); err != nil || len(body) > 0 {
			t.Errorf("an answer without content is %q: %v", body, err)
		}
	}
	if err := connection.call(t.Context(), `{}`, `"acquired":true`); err == nil {
		t.Error("an answer without what is wanted is no error")
	}
}
