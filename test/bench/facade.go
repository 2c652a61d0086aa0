package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"time"
)

// facadeClient takes locks by HTTP as a program in any language would: a ping with the
// lock extension acquires, the function forrst.locks.release releases.
type facadeClient struct {
	connection     *facadeConnection
	key            string
	owner          string
	block          time.Duration
	take, giveBack []byte
}

// newFacade returns the façade as a contender; its clients wait for up to block.
func newFacade(address string, block time.Duration) contender {
	return contender{name: facadeName, resource: "locks", open: func(ctx context.Context, client int) (locker, error) {
		connection, err := dialFacade(ctx, address)
		if err != nil {
			return nil, err
		}
		return &facadeClient{connection: connection, owner: ownerOf(client), block: block}, nil
	}}
}

func (f *facadeClient) acquire(ctx context.Context, key string) error {
	if key != f.key {
		f.key = key
		f.take = f.connection.request(acquireBody(key, f.owner, ttl, f.block))
		f.giveBack = f.connection.request(releaseBody(key, f.owner))
	}
	return f.connection.call(ctx, f.take, []byte(`"acquired":true`))
}

func (f *facadeClient) release(ctx context.Context, _ string) error {
	return f.connection.call(ctx, f.giveBack, []byte(`"released":true`))
}

func (f *facadeClient) close() { f.connection.close() }

func acquireBody(key, owner string, life, block time.Duration) []byte {
	var body bytes.Buffer
	fmt.Fprintf(&body, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"forrst.ping"},`+
		`"extensions":[{"urn":"urn:forrst:ext:atomicLock","options":{"key":%q,"scope":"global","owner":%q,`+
		`"ttl":{"value":%d,"unit":"millisecond"},"auto_release":false`, key, owner, life.Milliseconds())
	if block > 0 {
		fmt.Fprintf(&body, `,"block":{"value":%d,"unit":"second"}`, int(block.Seconds()))
	}
	body.WriteString(`}}]}`)
	return body.Bytes()
}

func releaseBody(key, owner string) []byte {
	return fmt.Appendf(nil, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":`+
		`{"function":"urn:cline:forrst:ext:atomic-lock:fn:release","version":"1.0.0","arguments":{"key":%q,"owner":%q}}}`,
		"lock:"+key, owner)
}

func dialFacade(ctx context.Context, address string) (*facadeConnection, error) {
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newFacadeConnection(connection, address), nil
}
