package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestTheFacadeServesBeforeItsCacheIsFull holds the first list of locks back, and asks for a lock
// meanwhile: etcd decides about it.
func TestTheFacadeServesBeforeItsCacheIsFull(t *testing.T) {
	api := newStubAPI(t)
	facade, probes := freePort(t), freePort(t)
	manager := startOperator(t, api, "--components=facade", "--facade-bind-address="+facade, "--health-probe-bind-address="+probes)
	begun := time.Now()
	eventually(t, func() bool {
		status, _ := ask(t, http.MethodGet, "http://"+probes+"/readyz", "")
		return status == http.StatusOK
	})
	t.Logf("ready after %s", time.Since(begun))
	if status, text := ask(t, http.MethodPost, "http://"+facade+"/v1/namespaces/default/locks/k", `{"ttl_seconds":60}`); status != http.StatusCreated {
		t.Errorf("a lock is not granted: %d %s", status, text)
	}
	synced, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if manager.GetCache().WaitForCacheSync(synced) {
		t.Fatal("the cache is full already: the test shows nothing")
	}
	if api.openWatches() != 1 {
		t.Errorf("%d watches of locks are open", api.openWatches())
	}
	if err := api.show(t.Context(), endOfList); err != nil {
		t.Fatal(err)
	}
	if !manager.GetCache().WaitForCacheSync(t.Context()) {
		t.Error("the cache has not synced")
	}
}

// freePort returns a loopback address that no process listens on.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // nothing was served
	return listener.Addr().String()
}

// ask returns status and text of an answer; 0 if there is none.
func ask(t *testing.T, method, url, body string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // All has been read.
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// eventually checks until what is asked for is true.
func eventually(t *testing.T, isTrue func() bool) {
	t.Helper()
	checks := time.NewTicker(50 * time.Millisecond)
	defer checks.Stop()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case <-deadline:
			t.Fatal("it has not come about")
		case <-checks.C:
			if isTrue() {
				return
			}
		}
	}
}
