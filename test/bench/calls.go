package main

import (
	"bytes"
	"context"
	"fmt"
)

// routedFunction is one that the façade forwards to the echo.
const routedFunction = "bench.echo"

// routesOf returns the cluster's file of routes.
func routesOf(echo *echoProcess) string {
	return fmt.Sprintf("routes:\n- functions: [%q]\n  url: http://%s%s\n", routedFunction, echo.address, servicePath)
}

// caller makes one call per cycle by HTTP.
type caller struct {
	connection *facadeConnection
	key        string
	body       func(key string) []byte
	request    []byte
	// wants are the texts that the answer must contain.
	wants [][]byte
}

// newCaller returns a contender whose clients call the address. The answers must contain
// all of the texts.
func newCaller(name, address string, body func(client int, key string) []byte, wants ...string) contender {
	return contender{name: name, open: func(ctx context.Context, client int) (locker, error) {
		connection, err := dialFacade(ctx, address)
		if err != nil {
			return nil, err
		}
		opened := &caller{connection: connection, body: func(key string) []byte { return body(client, key) }}
		for _, want := range wants {
			opened.wants = append(opened.wants, []byte(want))
		}
		return opened, nil
	}}
}

func (c *caller) acquire(ctx context.Context, key string) error {
	if key != c.key {
		c.key, c.request = key, c.connection.request(c.body(key))
	}
	return c.connection.call(ctx, c.request, c.wants...)
}

// release does nothing: the call itself has released its lock.
func (c *caller) release(context.Context, string) error { return nil }

func (c *caller) close() { c.connection.close() }

func pingBody(int, string) []byte {
	return []byte(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"forrst.ping"}}`)
}

func routedBody(int, string) []byte { return routedCall("") }

func lockedBody(client int, key string) []byte {
	return routedCall(fmt.Sprintf(`,"extensions":[{"urn":"urn:forrst:ext:atomicLock","options":{"key":%q,"scope":"global","owner":%q,`+
		`"ttl":{"value":%d,"unit":"millisecond"},"auto_release":true}}]`, key, ownerOf(client), ttl.Milliseconds()))
}

func routedCall(extensions string) []byte {
	var body bytes.Buffer
	fmt.Fprintf(&body, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":`+
		`{"function":%q,"version":"1.0.0","arguments":{"sku":"X9","count":3}}%s}`, routedFunction, extensions)
	return body.Bytes()
}
