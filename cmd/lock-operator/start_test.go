package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
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

// TestCallersOfOneMachineHaveTheWholeLine has two of them wait where a caller of its own could have one wait.
func TestCallersOfOneMachineHaveTheWholeLine(t *testing.T) {
	api := newStubAPI(t)
	facade := freePort(t)
	manager := startOperator(t, api, "--components=facade", "--facade-bind-address="+facade, "--facade-namespace=payments",
		"--facade-max-line-per-caller=1", "--facade-max-line-per-namespace=1", "--facade-drain-timeout=1s")
	for _, event := range []string{added(t, 1), endOfList} {
		if err := api.show(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	if !manager.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the cache has not synced")
	}
	lock := "http://" + facade + "/v1/namespaces/payments/locks/billing:report:1"
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() { _, _ = ask(t, http.MethodPost, lock, `{"ttl_seconds":60,"wait_seconds":30}`) })
	}
	t.Cleanup(waiting.Wait) // They end with the context of the test.
	eventually(t, func() bool {
		_, text := ask(t, http.MethodGet, lock+"/waiters", "")
		return strings.Contains(text, `"place":2`)
	})
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
	deadline := time.After(time.Minute)
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
