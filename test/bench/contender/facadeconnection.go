package contender

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// answerTimeout bounds the wait for an answer.
const answerTimeout = 5 * time.Minute

// FacadeConnection is a keep-alive connection with just enough HTTP. The client of net/http
// would add its own cost to the façade's.
type FacadeConnection struct {
	Connection net.Conn
	Reader     *bufio.Reader
	address    string
	// Header is sent with each request: whole lines, or empty.
	Header string
}

// NewFacadeConnection returns one to the façade at the address, which ends with the connection.
func NewFacadeConnection(connection net.Conn, address string) *FacadeConnection {
	return &FacadeConnection{Connection: connection, Reader: bufio.NewReaderSize(connection, 2<<10), address: address}
}

// Request returns a whole HTTP request of the Forrst door with the body.
func (c *FacadeConnection) Request(body []byte) []byte {
	return c.requestTo(http.MethodPost, "/forrst", body)
}

// requestTo returns a whole HTTP request.
func (c *FacadeConnection) requestTo(method, path string, body []byte) []byte {
	request := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n%s", method, path, c.address, c.Header)
	if body != nil {
		request = fmt.Appendf(request, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return append(append(request, "\r\n"...), body...)
}

// Call sends a request and fails unless the answer contains all of the texts.
func (c *FacadeConnection) Call(ctx context.Context, request []byte, wants ...[]byte) error {
	body, err := c.send(ctx, request)
	if err != nil {
		return err
	}
	for _, want := range wants {
		if !bytes.Contains(body, want) {
			return fmt.Errorf("the façade answered %s", body)
		}
	}
	return nil
}

// Asks sends a request and reports whether the answer contains the text.
func (c *FacadeConnection) Asks(ctx context.Context, request, want []byte) (bool, error) {
	body, err := c.send(ctx, request)
	return bytes.Contains(body, want), err
}

// send sends a request and returns the body of its answer.
func (c *FacadeConnection) send(ctx context.Context, request []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.Connection.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	if _, err := c.Connection.Write(request); err != nil {
		return nil, err
	}
	body, err := c.answer()
	if err != nil {
		return nil, fmt.Errorf("read the answer of the façade: %w", err)
	}
	return body, nil
}

// noContent begins the answer that has no body and says nothing about its length.
var noContent = []byte("HTTP/1.1 204 ")

// answer returns the body of the next answer, valid until the next call.
func (c *FacadeConnection) answer() ([]byte, error) {
	length := -1
	for {
		line, err := c.Reader.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if bytes.HasPrefix(line, noContent) {
			length = 0
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if _, err := fmt.Sscan(string(value), &length); err != nil {
				return nil, err
			}
		}
	}
	if length < 0 {
		return nil, fmt.Errorf("the answer has no %s", http.CanonicalHeaderKey("content-length"))
	}
	body := make([]byte, length)
	_, err := io.ReadFull(c.Reader, body)
	return body, err
}

// Close ends the connection.
func (c *FacadeConnection) Close() { _ = c.Connection.Close() }
