package robustness_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Locks are stored in etcd below the first prefix. The second prefix, which begins both,
// includes a key of the test that the API server ignores.
const (
	locksPrefix  = "/registry/forrst.dev/locks/"
	journalRange = "/registry/forrst.dev/locks"
	journalEnd   = "/registry/forrst.dev/lockt"
	markerKey    = "/registry/forrst.dev/locks-end-of-journal"
	// clientNamespace has the locks of the clients.
	clientNamespace = "default"
	// probePrefix begins the names of the objects with which replicas probe.
	probePrefix = "probe-"
)

// write is one write of a Lock as etcd committed it.
type write struct {
	revision int64
	name     string
	// lock is the object that was written, or nil after a delete.
	lock *v1alpha1.Lock
	// seen is when the journal learnt of the write, which was committed before.
	seen time.Duration
}

// journal is etcd's own record of every write of a Lock, in order and without gaps, even
// if the API server or its clients fail. It shows the results of unanswered operations
// and the tokens of grants.
type journal struct {
	etcd    string
	history *history
	ended   chan error

	mu     sync.Mutex
	writes []write
	// revision is that of the last event, of whatever kind.
	revision int64
}

// startJournal watches etcd until ctx ends or [journal.finish] is called.
func startJournal(ctx context.Context, etcd string, history *history) (*journal, error) {
	j := &journal{etcd: etcd, history: history, ended: make(chan error, 1)}
	watch, err := j.open(ctx)
	if err != nil {
		return nil, err
	}
	go func() { j.ended <- j.run(ctx, watch) }()
	return j, nil
}

// etcdWatch is a watch that etcd has confirmed.
type etcdWatch struct {
	body    io.Closer
	decoder *json.Decoder
}

// open begins a watch after the last write that is known, or now if there is none.
func (j *journal) open(ctx context.Context) (etcdWatch, error) {
	request := map[string]any{
		"key": base64.StdEncoding.EncodeToString([]byte(journalRange)), "range_end": base64.StdEncoding.EncodeToString([]byte(journalEnd)),
	}
	if last := j.last(); last > 0 {
		request["start_revision"] = strconv.FormatInt(last+1, 10)
	}
	response, err := j.post(ctx, "/v3/watch", map[string]any{"create_request": request})
	if err != nil {
		return etcdWatch{}, err
	}
	decoder := json.NewDecoder(response.Body)
	if err := decoder.Decode(new(watchMessage)); err != nil { // The confirmation of the watch.
		return etcdWatch{}, errors.Join(err, response.Body.Close())
	}
	return etcdWatch{response.Body, decoder}, nil
}

// run follows one watch after the other, since etcd may be killed, until it meets the marker.
func (j *journal) run(ctx context.Context, watch etcdWatch) error {
	for {
		err := j.follow(watch.decoder)
		_ = watch.body.Close()
		if err == nil || errors.Is(err, errLost) {
			return err
		}
		for {
			if !pause(ctx, retry) {
				return err
			}
			if watch, err = j.open(ctx); err == nil {
				break
			}
		}
	}
}

// errLost says that writes are missing.
var errLost = errors.New("etcd ended the watch")

// last returns the revision of the last write that is known, or zero.
func (j *journal) last() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.revision
}

// watchMessage is one message of etcd's JSON gateway.
type watchMessage struct {
	Result struct {
		Canceled bool        `json:"canceled"`
		Events   []etcdEvent `json:"events"`
	} `json:"result"`
}

type etcdEvent struct {
	Type string `json:"type"`
	KV   struct {
		Key         []byte `json:"key"`
		Value       []byte `json:"value"`
		ModRevision string `json:"mod_revision"`
	} `json:"kv"`
}

func (j *journal) follow(decoder *json.Decoder) error {
	for {
		var message watchMessage
		if err := decoder.Decode(&message); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
		if message.Result.Canceled {
			return errLost
		}
		seen := j.history.now()
		for _, event := range message.Result.Events {
			if string(event.KV.Key) == markerKey {
				return nil
			}
			if err := j.note(event, seen); err != nil {
				return err
			}
		}
	}
}

func (j *journal) note(event etcdEvent, seen time.Duration) error {
	revision, err := strconv.ParseInt(event.KV.ModRevision, 10, 64)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.revision = revision
	path, isLock := strings.CutPrefix(string(event.KV.Key), locksPrefix)
	if !isLock {
		return nil
	}
	namespace, name, _ := strings.Cut(path, "/")
	if namespace != clientNamespace || strings.HasPrefix(name, probePrefix) {
		return nil
	}
	noted := write{revision: revision, name: name, seen: seen}
	if event.Type != "DELETE" {
		noted.lock = &v1alpha1.Lock{}
		if err := json.Unmarshal(event.KV.Value, noted.lock); err != nil {
			return fmt.Errorf("decode %s from etcd: %w", path, err)
		}
	}
	j.writes = append(j.writes, noted)
	return nil
}

// finish returns all writes up to now.
func (j *journal) finish(ctx context.Context) ([]write, error) {
	marker := base64.StdEncoding.EncodeToString([]byte(markerKey))
	if err := j.ask(ctx, "/v3/kv/put", map[string]string{"key": marker, "value": ""}); err != nil {
		return nil, err
	}
	select {
	case err := <-j.ended:
		return j.writes, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// compact makes etcd forget all versions up to the last write that is known.
func (j *journal) compact(ctx context.Context) error {
	return j.ask(ctx, "/v3/kv/compaction", map[string]any{"revision": strconv.FormatInt(j.last(), 10)})
}

// setSpace makes etcd refuse writes that need space, or accept them again.
func (j *journal) setSpace(ctx context.Context, isLeft bool) error {
	action := "ACTIVATE"
	if isLeft {
		action = "DEACTIVATE"
	}
	return j.ask(ctx, "/v3/maintenance/alarm", map[string]string{"action": action, "alarm": "NOSPACE"})
}

// ask sends a request whose answer does not matter.
func (j *journal) ask(ctx context.Context, path string, body any) error {
	response, err := j.post(ctx, path, body)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func (j *journal) post(ctx context.Context, path string, body any) (*http.Response, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, j.etcd+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(response.Body) // For the error text only.
		return nil, errors.Join(fmt.Errorf("etcd answers %s: %d: %s", path, response.StatusCode, said), response.Body.Close())
	}
	return response, nil
}
