package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// maxSilence is how long a stream may be silent, on which the façade shows every 15 s that it is alive.
	maxSilence = 40 * time.Second
	// maxLineBytes bounds the line of an event, which describes one lock.
	maxLineBytes = 1 << 20
)

// newReconnection spaces the requests for streams: after an outage all holders ask again.
func newReconnection() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 9, Cap: 30 * time.Second}
}

// Watch implements [lock.Backend], by the events of the façade's REST door. Its goroutines end with ctx. It asks
// again for a stream that has ended; the channel stays open meanwhile. The end of a lock by its ttl is told when its
// object is deleted, if at all.
//
// The error matches [errors.ErrUnsupported] if the client was not made [WithWatch], if the façade has no such
// stream, and if the call names no namespace and no answer has told the caller's own yet.
func (c *Client) Watch(ctx context.Context, namespace string, key v1alpha1.FullKey) (<-chan lock.Change, error) {
	namespace = cmp.Or(namespace, c.options.namespace)
	if own := c.ownNamespace.Load(); namespace == "" && own != nil {
		namespace = *own
	}
	if !c.options.isWatched || namespace == "" {
		return nil, fmt.Errorf("watch %s through a façade: %w", key, errors.ErrUnsupported)
	}
	w := &watch{client: c, namespace: namespace, key: key, changes: make(chan lock.Change, 1)}
	opened, err := w.open(ctx)
	switch {
	case ctx.Err() != nil:
		opened.close()
		return nil, ctx.Err()
	case err != nil && !mayRecover(err):
		return nil, fmt.Errorf("watch %s through a façade: %w", key, err)
	}
	go w.run(ctx, opened)
	return w.changes, nil
}

// watch follows one lock.
type watch struct {
	client    *Client
	namespace string
	key       v1alpha1.FullKey
	// changes holds the latest state, unless it was received.
	changes chan lock.Change
	// hasBegun says that a state was sent.
	hasBegun bool
	// present is the lock as sent last. Nil if it is free.
	present *v1alpha1.Lock
	// lastID is that of the last event that had one.
	lastID string
}

// stream is an answer of events. A nil stream has none.
type stream struct {
	response *http.Response
	// cancel ends what silence has not ended before.
	cancel  context.CancelFunc
	silence clock.Timer
}

func (s *stream) close() {
	if s != nil {
		s.cancel()
		_ = s.response.Body.Close()
	}
}

// open asks for the events of the lock.
func (w *watch) open(ctx context.Context) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	silence := w.client.options.clock.NewTimer(w.client.options.timeout)
	go func() {
		defer silence.Stop()
		select {
		case <-silence.C():
			cancel()
		case <-ctx.Done():
		}
	}()
	response, err := w.request(ctx) //nolint:bodyclose // The stream closes it.
	if err != nil {
		cancel()
		return nil, err
	}
	opened := &stream{response: response, cancel: cancel, silence: silence}
	if err := refusalOf(response); err != nil {
		opened.close()
		return nil, err
	}
	return opened, nil
}

func (w *watch) request(ctx context.Context) (*http.Response, error) {
	url := w.client.base + wire.LockPath(w.namespace, w.key.Bare(), "") + "?watch=true"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", wire.EventStream)
	if w.lastID != "" {
		request.Header.Set(wire.LastEventID, w.lastID)
	}
	if err := w.client.authenticate(request); err != nil {
		return nil, err
	}
	response, err := w.client.http.Do(request)
	if err != nil {
		return nil, &unansweredError{err}
	}
	return response, nil
}

// refusalOf returns nil if the answer is a stream of events.
func refusalOf(response *http.Response) error {
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode == http.StatusOK && mediaType == wire.EventStream {
		return nil
	}
	err := fmt.Errorf("the answer is no stream of events: %w", errors.ErrUnsupported)
	if response.StatusCode < 300 {
		return err
	}
	return withoutEnvelope(response.StatusCode, err)
}

// run sends changes until ctx ends.
func (w *watch) run(ctx context.Context, opened *stream) {
	defer close(w.changes)
	backoff := newReconnection()
	for {
		if opened != nil {
			began := w.client.options.clock.Now()
			w.read(ctx, opened)
			opened.close()
			if w.client.options.clock.Since(began) > backoff.Cap {
				backoff = newReconnection()
			}
		}
		if !w.client.pause(ctx, &backoff) {
			return
		}
		// A refusal may be one of a replica that starts, or of a token that is about to be replaced.
		opened, _ = w.open(ctx)
	}
}

// read sends what the stream tells until it ends.
func (w *watch) read(ctx context.Context, opened *stream) {
	lines := bufio.NewScanner(opened.response.Body)
	lines.Buffer(nil, maxLineBytes)
	var next event
	for lines.Scan() {
		opened.silence.Reset(maxSilence)
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			next.name = value
		case "id":
			next.id = value
		case "data":
			next.data = value
		case "":
			if lines.Text() != "" { // a comment
				continue
			}
			if ctx.Err() != nil || w.follow(next) != nil {
				return
			}
			next = event{}
		}
	}
}

// event is what the façade tells of the lock.
type event struct{ name, id, data string }

// follow sends the state that an event shows.
func (w *watch) follow(told event) error {
	switch told.name {
	case wire.EventSync:
		var all wire.Locks
		if err := json.Unmarshal([]byte(told.data), &all); err != nil {
			return err
		}
		if rules.IsNewer(w.lastID, told.id) {
			return nil // of a replica that is behind: what it has not seen yet follows
		}
		w.lastID = told.id
		if len(all.Locks) == 0 {
			w.sendGone(w.present, told.id)
			return nil
		}
		return w.sendHeld(all.Locks[0], told.id)
	case wire.EventAcquired, wire.EventHandedOff, wire.EventRenewed, wire.EventChanged:
		return w.about(told, w.sendHeld)
	case wire.EventReleased, wire.EventExpired:
		if told.id == "" && told.name == wire.EventExpired {
			// By the time alone. A replica that is behind has not seen the last renewal yet.
			return nil
		}
		return w.about(told, func(described wire.Lock, version string) error {
			former, err := watchedLock(&described)
			if err == nil {
				w.sendGone(former, version)
			}
			return err
		})
	}
	return nil
}

// about sends the state that an event about one lock shows.
func (w *watch) about(told event, send func(wire.Lock, string) error) error {
	var described wire.Lock
	if err := json.Unmarshal([]byte(told.data), &described); err != nil {
		return err
	}
	w.lastID = cmp.Or(told.id, w.lastID)
	return send(described, told.id)
}

func (w *watch) sendHeld(described wire.Lock, version string) error {
	held, err := watchedLock(&described)
	if err != nil {
		return err
	}
	held.ResourceVersion = version
	w.present = held
	w.send(lock.Change{Lock: held})
	return nil
}

// sendGone says that the lock is free, which was held as former says. Nil says that it was not held before.
func (w *watch) sendGone(former *v1alpha1.Lock, version string) {
	w.present = nil
	if former == nil {
		if !w.hasBegun {
			w.send(lock.Change{IsGone: true})
		}
		return
	}
	former = former.DeepCopy()
	former.ResourceVersion = version
	w.send(lock.Change{Lock: former, IsGone: true})
}

// send replaces a state that was not received yet.
func (w *watch) send(change lock.Change) {
	w.hasBegun = true
	select {
	case <-w.changes:
	default:
	}
	w.changes <- change
}

// watchedLock returns the lock that an event describes.
func watchedLock(described *wire.Lock) (*v1alpha1.Lock, error) {
	spec := v1alpha1.LockSpec{
		Scope:        v1alpha1.ScopeGlobal,
		Key:          described.Key,
		Function:     described.Function,
		Holder:       described.Holder,
		Reason:       described.Reason,
		FencingToken: described.FencingToken,
		TTL:          fromSeconds(described.TTLSeconds),
		ReleaseDelay: fromSeconds(described.ReleaseDelaySeconds),
	}
	if spec.Function != "" {
		spec.Scope = v1alpha1.ScopeFunction
	}
	if ref := described.HolderRef; ref != nil {
		spec.HolderRef = &v1alpha1.HolderReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: types.UID(ref.UID)}
	}
	if err := setStamps(&spec, described.AcquiredAt, described.RenewedAt, described.ExpiresAt); err != nil {
		return nil, err
	}
	return &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: described.Namespace, Name: spec.FullKey().ObjectName()}, Spec: spec}, nil
}

func fromSeconds(seconds *float64) *v1alpha1.Duration {
	if seconds == nil {
		return nil
	}
	return &v1alpha1.Duration{Duration: time.Duration(math.Round(*seconds * float64(time.Second)))}
}
