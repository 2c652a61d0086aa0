package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

const restName = "REST"

// restClient takes locks through the REST door, with as little HTTP as the client of the Forrst door.
type restClient struct {
	connection *facadeConnection
	key        string
	take       []byte
	// giveBack is the request that releases the lock, up to the lock token.
	giveBack []byte
	token    []byte
}

// newREST returns the REST door as a contender, which does not wait.
func newREST(address string) contender {
	return contender{name: restName, resource: "locks", open: func(ctx context.Context, _ int) (locker, error) {
		connection, err := dialFacade(ctx, address)
		if err != nil {
			return nil, err
		}
		return &restClient{connection: connection}, nil
	}}
}

func locksPath(key string) string { return "/v1/namespaces/" + namespace + "/locks" + key }

func (r *restClient) acquire(ctx context.Context, key string) error {
	if key != r.key {
		r.key = key
		r.take = r.connection.requestTo(http.MethodPost, locksPath("/"+key), fmt.Appendf(nil, `{"ttl_seconds":%g}`, ttl.Seconds()))
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

func (r *restClient) release(ctx context.Context, _ string) error {
	request := slices.Concat(r.giveBack, []byte("X-Lock-Token: "), r.token, []byte("\r\n\r\n"))
	body, err := r.connection.send(ctx, request)
	if err == nil && len(body) > 0 {
		return fmt.Errorf("the REST door answered %s", body)
	}
	return err
}

func (r *restClient) close() { r.connection.close() }

// doors compares an acquire and a release through the two doors.
func doors(clients int) func(context.Context, *lab, *report) error {
	return func(ctx context.Context, l *lab, r *report) error {
		results, err := l.compare(ctx, &comparison{
			name: fmt.Sprintf("doors, %d", clients), clients: clients,
			rounds: l.options.roundsOf(40), slice: 300 * time.Millisecond,
			contenders: []contender{newFacade(l.cluster.facade, 0), newREST(l.cluster.facade)},
		})
		if err != nil {
			return err
		}
		forrst, rest := results[facadeName], results[restName]
		r.add(forrst)
		// Times per cycle are the reciprocals of the rates.
		r.add(rest, atMost("time / Forrst", medianRatio(forrst.rates, rest.rates), 1.05, ""))
		return nil
	}
}

// listedLocks is how many locks the scenario of lists has.
const listedLocks = 2000

// lists compares the pages of the REST door with the list of the Forrst door, in a namespace with many
// locks.
func lists(ctx context.Context, l *lab, r *report) error {
	if err := l.fill(ctx, "listed", listedLocks, func() time.Duration { return time.Hour }); err != nil {
		return err
	}
	whole := newCaller("Forrst list", l.cluster.facade, func(int, string) []byte {
		return []byte(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"urn:k8s:forrst:ext:atomic-lock:fn:list"}}`)
	}, "listed-0", "listed-1999")
	page := contender{name: "REST page of 500", open: openPages(l.cluster.facade, false)}
	all := contender{name: "REST, all pages", open: openPages(l.cluster.facade, true)}
	results, err := l.compare(ctx, &comparison{
		name: fmt.Sprintf("list of %d", listedLocks), clients: 1,
		rounds: l.options.roundsOf(10), slice: time.Second, contenders: []contender{whole, page, all},
	})
	if err != nil {
		return err
	}
	r.add(results[whole.name])
	r.add(results[page.name])
	r.add(results[all.name])
	return nil
}

// pages reads pages of a list.
type pages struct {
	connection *facadeConnection
	// isWhole says that a cycle reads the whole list, not one page.
	isWhole bool
	// next is the continue of the next page, or empty.
	next string
}

func openPages(address string, isWhole bool) func(context.Context, int) (locker, error) {
	return func(ctx context.Context, _ int) (locker, error) {
		connection, err := dialFacade(ctx, address)
		if err != nil {
			return nil, err
		}
		return &pages{connection: connection, isWhole: isWhole}, nil
	}
}

func (p *pages) acquire(ctx context.Context, _ string) error {
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
	if p.isWhole && seen < listedLocks {
		return fmt.Errorf("the list has %d locks", seen)
	}
	return nil
}

func (p *pages) release(context.Context, string) error { return nil }

func (p *pages) close() { p.connection.close() }
