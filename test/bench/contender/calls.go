package contender

import (
	"bytes"
	"context"
	"fmt"

	"forrst.dev/lock-operator/test/bench/measure"
)

// RoutedFunction is one that the façade forwards to the echo.
const RoutedFunction = "bench.echo"

// caller makes one call per cycle by HTTP.
type caller struct {
	connection *FacadeConnection
	key        string
	body       func(key string) []byte
	request    []byte
	// wants are the texts that the answer must contain.
	wants [][]byte
}

// NewCaller returns a contender whose clients call the address. The answers must contain
// all of the texts.
func NewCaller(name, address string, body func(client int, key string) []byte, wants ...string) measure.Contender {
	return measure.Contender{Name: name, Open: func(ctx context.Context, client int) (measure.Locker, error) {
		connection, err := DialFacade(ctx, address)
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

// Acquire implements [measure.Locker].
func (c *caller) Acquire(ctx context.Context, key string) error {
	if key != c.key {
		c.key, c.request = key, c.connection.Request(c.body(key))
	}
	return c.connection.Call(ctx, c.request, c.wants...)
}

// Release does nothing: the call itself has released its lock.
func (c *caller) Release(context.Context, string) error { return nil }

// Close implements [measure.Locker].
func (c *caller) Close() { c.connection.Close() }

// PingBody returns the body of a ping.
func PingBody(int, string) []byte {
	return []byte(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"forrst.ping"}}`)
}

// HealthBody is the body of a call that asks for the health of the façade's components.
var HealthBody = []byte(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"forrst.health"}}`)

// RoutedBody returns the body of a routed call without a lock.
func RoutedBody(int, string) []byte { return routedCall("") }

// LockedBody returns the body of a routed call inside a lock, which ends with it.
func LockedBody(client int, key string) []byte {
	return routedCall(fmt.Sprintf(`,"extensions":[{"urn":"urn:forrst:ext:atomicLock","options":{"key":%q,"scope":"global","owner":%q,`+
		`"ttl":{"value":%d,"unit":"millisecond"},"auto_release":true}}]`, key, OwnerOf(client), TTL.Milliseconds()))
}

func routedCall(extensions string) []byte {
	var body bytes.Buffer
	fmt.Fprintf(&body, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":`+
		`{"function":%q,"version":"1.0.0","arguments":{"sku":"X9","count":3}}%s}`, RoutedFunction, extensions)
	return body.Bytes()
}
