package contender

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"forrst.dev/lock-operator/test/bench/measure"
)

// RESTName is the name of the REST door among contenders.
const RESTName = "REST"

// restClient takes locks through the REST door, with as little HTTP as the client of the Forrst door.
type restClient struct {
	connection *FacadeConnection
	key        string
	take       []byte
	// giveBack is the request that releases the lock, up to the lock token.
	giveBack []byte
	token    []byte
}

// NewREST returns the REST door as a contender, which does not wait.
func NewREST(address string) measure.Contender {
	return measure.Contender{Name: RESTName, Resource: "locks", Open: func(ctx context.Context, _ int) (measure.Locker, error) {
		connection, err := DialFacade(ctx, address)
		if err != nil {
			return nil, err
		}
		return &restClient{connection: connection}, nil
	}}
}

func locksPath(key string) string { return "/v1/namespaces/" + Namespace + "/locks" + key }

// Acquire implements [measure.Locker].
func (r *restClient) Acquire(ctx context.Context, key string) error {
	if key != r.key {
		r.key = key
		r.take = r.connection.requestTo(http.MethodPost, locksPath("/"+key), fmt.Appendf(nil, `{"ttl_seconds":%g}`, TTL.Seconds()))
		r.giveBack = bytes.TrimSuffix(r.connection.requestTo(http.MethodDelete, locksPath("/"+key), nil), []byte("\r\n"))
	}
	body, err := r.connection.send(ctx, r.take)
	if err != nil {
		return err
	}
	const before = `"lock_token":"`
	_, rest, ok := bytes.Cut(body, []byte(before))
	token, _, isWhole := bytes.Cut(rest, []byte(`"`))
	if !ok || !isWhole {
		return fmt.Errorf("the REST door answered %s", body)
	}
	r.token = append(r.token[:0], token...)
	return nil
}

// Release implements [measure.Locker].
func (r *restClient) Release(ctx context.Context, _ string) error {
	request := slices.Concat(r.giveBack, []byte("X-Lock-Token: "), r.token, []byte("\r\n\r\n"))
	body, err := r.connection.send(ctx, request)
	if err == nil && len(body) > 0 {
		return fmt.Errorf("the REST door answered %s", body)
	}
	return err
}

// Close implements [measure.Locker].
func (r *restClient) Close() { r.connection.Close() }

// pages reads pages of a list.
type pages struct {
	connection *FacadeConnection
	// isWhole says that a cycle reads the whole list, not one page.
	isWhole bool
	// next is the continue of the next page, or empty.
	next string
}

// OpenPages returns how to open a client that reads pages, or the whole list, of the REST door.
func OpenPages(address string, isWhole bool) func(context.Context, int) (measure.Locker, error) {
	return func(ctx context.Context, _ int) (measure.Locker, error) {
		connection, err := DialFacade(ctx, address)
		if err != nil {
			return nil, err
		}
		return &pages{connection: connection, isWhole: isWhole}, nil
	}
}

// Acquire implements [measure.Locker].
func (p *pages) Acquire(ctx context.Context, _ string) error {
	seen := 0
	for {
		path := locksPath("?limit=500")
		if p.next != "" {
			path += "&continue=" + p.next
		}
		body, err := p.connection.send(ctx, p.connection.requestTo(http.MethodGet, path, nil))
		if err != nil {
			return err
		}
		seen += bytes.Count(body, []byte(`"key":`))
		// It is the last member.
		var tail struct {
			Continue string `json:"continue"`
		}
		if at := bytes.LastIndex(body, []byte(`],"continue":`)); at >= 0 {
			if err := json.Unmarshal(append([]byte("{"), body[at+2:]...), &tail); err != nil {
				return err
			}
		}
		p.next = tail.Continue
		if !p.isWhole && seen == 0 {
			return errors.New("an empty page")
		}
		if !p.isWhole || p.next == "" {
			break
		}
	}
	if p.isWhole && seen < ListedLocks {
		return fmt.Errorf("the list has %d locks", seen)
	}
	return nil
}

// Release implements [measure.Locker].
func (p *pages) Release(context.Context, string) error { return nil }

// Close implements [measure.Locker].
func (p *pages) Close() { p.connection.Close() }

// ListedLocks is how many locks the scenario of lists has.
const ListedLocks = 2000
