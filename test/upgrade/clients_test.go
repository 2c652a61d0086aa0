package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

// record is what the clients have seen. Safe for concurrent use.
type record struct {
	mu       sync.Mutex
	failures []string
	// tokens has the last fencing token of each key, grants their number.
	tokens map[string]int64
	grants int

	// whileEarlierStops is set while webhooks of the earlier release stop. Until it asks its clients to close
	// their connections and waits for that, a review can meet one that it is just closing.
	whileEarlierStops bool
	// excused is how many writes were refused so.
	excused int
}

func newRecord() *record { return &record{tokens: map[string]int64{}} }

// review makes a write that a webhook reviews, and notes its error. A write that began while webhooks of the earlier
// release stopped may end after that.
func (r *record) review(what string, write func() error) error {
	r.mu.Lock()
	mayMeetClosing := r.whileEarlierStops
	r.mu.Unlock()
	err := write()
	switch {
	case err == nil:
	case mayMeetClosing && isClosing(err):
		r.mu.Lock()
		defer r.mu.Unlock()
		r.excused++
	default:
		r.failed(what, err)
	}
	return err
}

func (r *record) failed(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf("%s: %s: %v", time.Now().Format(time.TimeOnly), what, err))
}

// isClosing reports whether a review met a connection that was just being closed. The API server says so in one of
// three ways: its connection ends while it waits for the answer, before it writes, or between two parts of the review.
func isClosing(err error) bool {
	text := err.Error()
	return strings.Contains(text, "failed calling webhook") && slices.ContainsFunc([]string{
		io.EOF.Error(), "http: server closed idle connection", net.ErrClosed.Error(),
	}, func(reason string) bool { return strings.HasSuffix(text, ": "+reason) })
}

// stopping says whether webhooks of the earlier release stop.
func (r *record) stopping(areEarlier bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whileEarlierStops = areEarlier
}

// granted is called while the lock of the key is held.
func (r *record) granted(key string, token int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.tokens[key]; token <= last {
		r.failures = append(r.failures, fmt.Sprintf("%s was granted with token %d after %d", key, token, last))
	}
	r.tokens[key] = token
	r.grants++
}

func (r *record) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grants
}

func (r *record) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.failures...)
}

// queue has a client of the SDK wait for a lock, take it and give it back until ctx ends. No other
// client may hold it meanwhile.
func (r *record) queue(ctx context.Context, locks *lock.Client, key string, isHeld *atomic.Bool) {
	for ctx.Err() == nil {
		held, err := locks.Acquire(ctx, key, lock.WithTTL(30*time.Second))
		if err != nil {
			if ctx.Err() == nil {
				r.failed("acquire "+key, err)
			}
			continue
		}
		if !isHeld.CompareAndSwap(false, true) {
			r.failed("acquire "+key, errors.New("another client holds it"))
		}
		r.granted(key, held.FencingToken())
		isHeld.Store(false)
		if err := held.Release(context.WithoutCancel(ctx)); err != nil {
			r.failed("release "+key, err)
		}
	}
}

// call has a program that neither repeats a request nor keeps a connection take and give back a lock
// through the REST door until ctx ends.
func (r *record) call(ctx context.Context, caller *http.Client, url, token string) {
	for ctx.Err() == nil {
		acquired, err := send(ctx, caller, http.MethodPost, url, token, `{"ttl_seconds": 30}`, "")
		if err == nil {
			_, err = send(context.WithoutCancel(ctx), caller, http.MethodDelete, url, token, "", acquired)
		}
		if err != nil && ctx.Err() == nil {
			r.failed("call the façade", err)
		}
	}
}

func send(ctx context.Context, caller *http.Client, method, url, token, body, lockToken string) (acquired string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewBufferString(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	if lockToken != "" {
		request.Header.Set("X-Lock-Token", lockToken)
	}
	response, err := caller.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return "", fmt.Errorf("%s: status %d: %s", method, response.StatusCode, text)
	}
	var answer struct {
		Token string `json:"lock_token"`
	}
	if len(text) > 0 {
		err = json.Unmarshal(text, &answer)
	}
	return answer.Token, err
}

// write has a user create, change and delete Locks directly, through admission, until ctx ends.
func (r *record) write(ctx context.Context, user fixture.Identity, namespace string) {
	for number := 0; ctx.Err() == nil; number++ {
		manifest := fixture.Manifest(namespace, "written-"+strconv.Itoa(number))
		// No context ends a write, so none fails for that.
		during := context.WithoutCancel(ctx)
		if r.review("create a Lock", func() error { return user.Client.Create(during, manifest) }) != nil {
			continue
		}
		changed := manifest.DeepCopy()
		changed.Spec.Reason = "changed"
		_ = r.review("update a Lock", func() error { return user.Client.Update(during, changed) })
		_ = r.review("delete a Lock", func() error { return user.Client.Delete(during, manifest) })
	}
}
