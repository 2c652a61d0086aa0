package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// answerTimeout bounds the wait for an answer.
const answerTimeout = 5 * time.Minute

// facade is how clients reach a façade.
type facade struct {
	// addresses are those of its replicas, over which clients are spread.
	addresses []string
	// tls is nil if it speaks plain HTTP.
	tls *tls.Config
	// operator is the process of the first replica, if it is not the cluster's operator.
	operator int
}

// connection is a keep-alive connection with just enough HTTP. The client of net/http would add its own cost to the façade's.
type connection struct {
	net.Conn

	answers *bufio.Reader
	host    string
}

// dial connects a client.
func (f facade) dial(ctx context.Context, client int) (*connection, error) {
	address := f.addresses[client%len(f.addresses)]
	dial := new(net.Dialer).DialContext
	if f.tls != nil {
		dial = (&tls.Dialer{Config: f.tls}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{conn, bufio.NewReaderSize(conn, 2<<10), address}, nil
}

// hangUp closes the connection. What becomes of its request is of no interest.
func (c *connection) hangUp() { _ = c.Close() }

// send sends a request with lines of headers of its own.
func (c *connection) send(method, path, header, body string) error {
	if body != "" {
		header += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	_, err := fmt.Fprintf(c.Conn, "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s", method, path, c.host, header, body)
	return err
}

// do sends a request and returns the body of its answer.
func (c *connection) do(ctx context.Context, method, path, header, body string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	if err := c.send(method, path, header, body); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return nil, fmt.Errorf("read the answer of the façade: %w", err)
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// call calls a function through the Forrst door. The answer must contain the text.
func (c *connection) call(ctx context.Context, call, want string) error {
	answer, err := c.do(ctx, http.MethodPost, "/forrst", "", call)
	if err == nil && !bytes.Contains(answer, []byte(want)) {
		err = fmt.Errorf("the façade answered %s", answer)
	}
	return err
}

// functionCall returns a call of the protocol: a function with its version and arguments, and extensions if there are any.
func functionCall(function, extensions string) string {
	return `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":` + function + `}` + extensions + `}`
}

// acquireCall acquires a lock, and waits for it for up to block, in whole seconds.
func acquireCall(key, owner string, block time.Duration) string {
	waits := ""
	if block > 0 {
		waits = fmt.Sprintf(`,"block":{"value":%d,"unit":"second"}`, int(block.Seconds()))
	}
	return functionCall(`"forrst.ping"`, fmt.Sprintf(`,"extensions":[{"urn":"urn:forrst:ext:atomicLock","options":{"key":%q,"scope":"global","owner":%q,`+
		`"ttl":{"value":%d,"unit":"millisecond"},"auto_release":false%s}}]`, key, owner, lockTTL.Milliseconds(), waits))
}

func releaseCall(key, owner string) string {
	return functionCall(fmt.Sprintf(`"urn:cline:forrst:ext:atomic-lock:fn:release","version":"1.0.0","arguments":{"key":%q,"owner":%q}`, "lock:"+key, owner), "")
}

func renewCall(key, owner string) string {
	return functionCall(fmt.Sprintf(`"urn:k8s:forrst:ext:atomic-lock:fn:renew","version":"1.0.0","arguments":{"key":%q,"owner":%q}`, "lock:"+key, owner), "")
}

// locks takes locks as a program in any language would: a ping with the lock extension acquires, and waits for up to block,
// and a function releases.
func (f facade) locks(name string, block time.Duration) contender {
	return contender{name: name, resource: locks, operator: f.operator, open: func(ctx context.Context, number int) client {
		c, owner := must(f.dial(ctx, number)), ownerOf(number)
		return client{
			acquire: func(ctx context.Context, key string) error {
				return c.call(ctx, acquireCall(key, owner, block), `"acquired":true`)
			},
			release: func(ctx context.Context, key string) error {
				return c.call(ctx, releaseCall(key, owner), `"released":true`)
			},
			close: c.hangUp,
		}
	}}
}

// rest takes locks through the REST door, and does not wait.
func (f facade) rest(name string) contender {
	pathOf := func(key string) string { return "/v1/namespaces/" + namespace + "/locks/" + key }
	return contender{name: name, resource: locks, operator: f.operator, open: func(ctx context.Context, number int) client {
		c := must(f.dial(ctx, number))
		var token string
		return client{
			acquire: func(ctx context.Context, key string) error {
				answer, err := c.do(ctx, http.MethodPost, pathOf(key), "", fmt.Sprintf(`{"ttl_seconds":%g}`, lockTTL.Seconds()))
				_, rest, ok := strings.Cut(string(answer), `"lock_token":"`)
				token, _, _ = strings.Cut(rest, `"`)
				if err == nil && !ok {
					err = fmt.Errorf("the REST door answered %s", answer)
				}
				return err
			},
			release: func(ctx context.Context, key string) error {
				answer, err := c.do(ctx, http.MethodDelete, pathOf(key), "X-Lock-Token: "+token+"\r\n", "")
				if err == nil && len(answer) > 0 {
					err = fmt.Errorf("the REST door answered %s", answer)
				}
				return err
			},
			close: c.hangUp,
		}
	}}
}
