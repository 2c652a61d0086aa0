//go:build nightly

package observability_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// setUp is what users of kubectl do: a program's lock, Jobs of one key, and a lock that the operator renews.
const setUp = `
kubectl create namespace payments
kubectl create -f config/samples/lock.yaml
kubectl annotate namespace payments forrst.dev/max-operator-renewal=1h
kubectl create --namespace payments -f - <<LOCK
apiVersion: forrst.dev/v1alpha1
kind: Lock
metadata: {name: renewed}
spec: {key: renewed, owner: renewed, ttl: 1m, renewalPolicy: Operator}
LOCK
for number in 1 2 3; do
  kubectl create --namespace payments -f - <<JOB
apiVersion: batch/v1
kind: Job
metadata:
  name: report-$number
  labels: {forrst.dev/lock: "true"}
  annotations: {forrst.dev/lock-key: "billing:report", forrst.dev/lock-ttl: 30s}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: report, image: none}]
JOB
done
`

// ended takes two locks for other users. One is ended by force, one with the Pod that holds it. A third one is
// refused, since it does not say which Pod.
const ended = `
sed 's/monthly/yearly/' config/samples/lock.yaml | kubectl create --as-group system:masters --as ann -f -
kubectl annotate lock billing--yearly-close forrst.dev/force-release-reason=trial
kubectl delete lock billing--yearly-close
kubectl run worker --image none
take() {
  kubectl create -f - <<LOCK
apiVersion: forrst.dev/v1alpha1
kind: Lock
metadata: {name: worker}
spec: {key: worker, owner: worker, ttl: 1h, holderRef: {apiVersion: v1, kind: Pod, name: worker, uid: "$1"}}
LOCK
}
take "$(kubectl get pod worker -o jsonpath='{.metadata.uid}')"
if take ""; then exit 1; fi
kubectl delete pod worker --force --grace-period 0
kubectl wait lock worker --for delete --timeout 20s
`

// load uses the operator through its doors until the context ends.
type load struct {
	facade string
	client *http.Client
	wg     sync.WaitGroup
}

// run starts all kinds of callers, and returns when they have ended.
func (l *load) run(ctx context.Context) {
	for worker := range 4 {
		l.repeat(ctx, 20*time.Millisecond, func(round int) { l.free(ctx, fmt.Sprintf("free:%d-%d", worker, round%50)) })
		l.repeat(ctx, 10*time.Millisecond, func(int) { l.busy(ctx, "queue:orders", 10) })
	}
	for range 3 {
		l.repeat(ctx, 50*time.Millisecond, func(int) { l.busy(ctx, "queue:invoices", 10) })
	}
	l.repeat(ctx, 100*time.Millisecond, func(round int) { l.forrst(ctx, fmt.Sprintf("plain:%d", round%10)) })
	// Holders that crash: their locks expire, and are taken over or deleted.
	l.repeat(ctx, 600*time.Millisecond, func(round int) { l.acquire(ctx, fmt.Sprintf("crash:%d", round%8), 0.5, 1) })
	l.repeat(ctx, 200*time.Millisecond, func(int) { l.acquire(ctx, "crash:often", 0.5, 1) })
	l.repeat(ctx, 200*time.Millisecond, func(int) { l.late(ctx, "late:one") })
	// A lock that is held throughout: one caller does not wait for it, one waits in vain, one renews it.
	token := l.acquire(ctx, "held:long", 300, 0)
	l.repeat(ctx, 300*time.Millisecond, func(int) { l.acquire(ctx, "held:long", 60, 0) })
	l.repeat(ctx, 100*time.Millisecond, func(int) { l.acquire(ctx, "held:long", 60, 1) })
	l.repeat(ctx, 250*time.Millisecond, func(int) { l.do(ctx, http.MethodPut, "held:long", token, `{"ttl_seconds":300}`) })
	l.wg.Wait()
}

// repeat calls a function with a pause after each call.
func (l *load) repeat(ctx context.Context, pause time.Duration, call func(round int)) {
	l.wg.Go(func() {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for round := 0; ctx.Err() == nil; round++ {
			call(round)
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
}

// free takes a lock that no other caller wants.
func (l *load) free(ctx context.Context, key string) {
	if token := l.acquire(ctx, key, 30, 0); token != "" {
		l.do(ctx, http.MethodDelete, key, token, "")
	}
}

// busy waits for a lock, renews it, and releases it.
func (l *load) busy(ctx context.Context, key string, wait float64) {
	if token := l.acquire(ctx, key, 30, wait); token != "" {
		l.do(ctx, http.MethodPut, key, token, `{"ttl_seconds":20}`)
		l.do(ctx, http.MethodDelete, key, token, "")
	}
}

// late renews a lock when a tenth of its time is left.
func (l *load) late(ctx context.Context, key string) {
	const ttl = time.Second
	token := l.acquire(ctx, key, ttl.Seconds(), 0)
	timer := time.NewTimer(ttl * 9 / 10)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
		l.do(ctx, http.MethodPut, key, token, `{"ttl_seconds":1}`)
		l.do(ctx, http.MethodDelete, key, token, "")
	}
}

// acquire returns the token of the lock, or nothing.
func (l *load) acquire(ctx context.Context, key string, ttl, wait float64) string {
	var lock struct {
		Token string `json:"lock_token"`
	}
	answer := l.do(ctx, http.MethodPost, key, "", fmt.Sprintf(`{"ttl_seconds":%g,"wait_seconds":%g}`, ttl, wait))
	_ = json.Unmarshal(answer, &lock)
	return lock.Token
}

// do calls the REST door. Errors are a part of the load.
func (l *load) do(ctx context.Context, method, key, token, body string) []byte {
	return l.send(ctx, method, l.facade+"/v1/namespaces/default/locks/"+key, token, body)
}

func (l *load) send(ctx context.Context, method, address, token, body string) []byte {
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewBufferString(body))
	if err != nil {
		return nil
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("X-Lock-Token", token)
	}
	response, err := l.client.Do(request)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	answer, _ := io.ReadAll(response.Body)
	return answer
}

// forrst calls a function under a lock, which the façade releases.
func (l *load) forrst(ctx context.Context, key string) {
	l.send(ctx, http.MethodPost, l.facade+"/forrst", "", `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1",
		"call":{"function":"urn:cline:forrst:fn:ping"},"extensions":[{"urn":"urn:cline:forrst:ext:atomic-lock",
		"options":{"key":"`+key+`","scope":"global","ttl":{"value":1,"unit":"minute"}}}]}`)
}

// putLoad uses the cluster for a time, and returns when it began.
func putLoad(t *testing.T, on *cluster, duration time.Duration) time.Time {
	t.Helper()
	if output, err := on.shell(t.Context(), setUp); err != nil {
		t.Fatal(output)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	l := &load{facade: on.Facade, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	defer l.client.CloseIdleConnections()
	l.repeat(ctx, 3*time.Second, func(int) {
		if output, err := on.shell(ctx, ended); err != nil && ctx.Err() == nil {
			t.Error(output)
		}
	})
	l.run(ctx)
	return began
}
