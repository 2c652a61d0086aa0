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
}

// startJournal watches etcd until ctx ends or [journal.finish] is called.
func startJournal(ctx context.Context, etcd string, history *history) (*journal, error) {
	j := &journal{etcd: etcd, history: history, ended: make(chan error, 1)}
	created := map[string]any{"create_request": map[string]string{
		"key": base64.StdEncoding.EncodeToString([]byte(journalRange)), "range_end": base64.StdEncoding.EncodeToString([]byte(journalEnd)),
	}}
	response, err := j.post(ctx, "/v3/watch", created) //nolint:bodyclose // The goroutine below does.
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(response.Body)
	if err := decoder.Decode(new(watchMessage)); err != nil { // The confirmation of the watch.
		return nil, errors.Join(err, response.Body.Close())
	}
	go func() {
		defer func() { _ = response.Body.Close() }()
		j.ended <- j.follow(decoder)
	}()
	return j, nil
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
			return errors.New("etcd ended the watch")
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
	path, isLock := strings.CutPrefix(string(event.KV.Key), locksPrefix)
	if !isLock {
		return nil
	}
	namespace, name, _ := strings.Cut(path, "/")
	if namespace != clientNamespace || strings.HasPrefix(name, probePrefix) {
		return nil
	}
	revision, err := strconv.ParseInt(event.KV.ModRevision, 10, 64)
	if err != nil {
		return err
	}
	noted := write{revision: revision, name: name, seen: seen}
	if event.Type != "DELETE" {
		noted.lock = &v1alpha1.Lock{}
		if err := json.Unmarshal(event.KV.Value, noted.lock); err != nil {
			return fmt.Errorf("decode %s from etcd: %w", path, err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writes = append(j.writes, noted)
	return nil
}

// finish returns all writes up to now.
func (j *journal) finish(ctx context.Context) ([]write, error) {
	marker := base64.StdEncoding.EncodeToString([]byte(markerKey))
	response, err := j.post(ctx, "/v3/kv/put", map[string]string{"key": marker, "value": ""})
	if err != nil {
		return nil, err
	}
	_ = response.Body.Close()
	select {
	case err := <-j.ended:
		return j.writes, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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
