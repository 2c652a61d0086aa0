package contender

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"time"

	"forrst.dev/lock-operator/test/bench/measure"
)

// FacadeClient takes locks by HTTP as a program in any language would: a ping with the
// lock extension acquires, the function forrst.locks.release releases.
type FacadeClient struct {
	Connection     *FacadeConnection
	key            string
	Owner          string
	block          time.Duration
	take, giveBack []byte
}

// FacadeName is the name of the façade among contenders.
const FacadeName = "façade"

// NewFacade returns the façade as a contender; its clients wait for up to block.
func NewFacade(address string, block time.Duration) measure.Contender {
	return measure.Contender{Name: FacadeName, Resource: "locks", Open: func(ctx context.Context, client int) (measure.Locker, error) {
		connection, err := DialFacade(ctx, address)
		if err != nil {
			return nil, err
		}
		return NewWaitingClient(connection, OwnerOf(client), block), nil
	}}
}

// NewWaitingClient returns a client on a connection that waits for up to block.
func NewWaitingClient(connection *FacadeConnection, owner string, block time.Duration) *FacadeClient {
	return &FacadeClient{Connection: connection, Owner: owner, block: block}
}

// Acquire implements [measure.Locker].
func (f *FacadeClient) Acquire(ctx context.Context, key string) error {
	if key != f.key {
		f.key = key
		f.take = f.Connection.Request(AcquireBody(key, f.Owner, TTL, f.block))
		f.giveBack = f.Connection.Request(ReleaseBody(key, f.Owner))
	}
	return f.Connection.Call(ctx, f.take, []byte(`"acquired":true`))
}

// Release implements [measure.Locker].
func (f *FacadeClient) Release(ctx context.Context, _ string) error {
	return f.Connection.Call(ctx, f.giveBack, []byte(`"released":true`))
}

// Close implements [measure.Locker].
func (f *FacadeClient) Close() { f.Connection.Close() }

// AcquireBody returns the body of a call that acquires a lock for life, and waits for it for up to block.
func AcquireBody(key, owner string, life, block time.Duration) []byte {
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

// ReleaseBody returns the body of a call that releases the lock.
func ReleaseBody(key, owner string) []byte {
	return fmt.Appendf(nil, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":`+
		`{"function":"urn:cline:forrst:ext:atomic-lock:fn:release","version":"1.0.0","arguments":{"key":%q,"owner":%q}}}`,
		"lock:"+key, owner)
}

// RenewBody returns the body of a call that renews the lock.
func RenewBody(key, owner string) []byte {
	return fmt.Appendf(nil, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":`+
		`{"function":"urn:k8s:forrst:ext:atomic-lock:fn:renew","version":"1.0.0","arguments":{"key":%q,"owner":%q}}}`,
		"lock:"+key, owner)
}

// DialFacade connects to the façade at the address. The caller closes the connection.
func DialFacade(ctx context.Context, address string) (*FacadeConnection, error) {
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return NewFacadeConnection(connection, address), nil
}
