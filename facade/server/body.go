package server

import (
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"

	"forrst.dev/lock-operator/facade/limits"
)

// RequestError refuses a request that cannot be read.
type RequestError struct {
	// Status is that of the answer, and Message what the caller is told.
	Status  int
	Message string
}

// Error implements error.
func (e *RequestError) Error() string { return e.Message }

// ReadBody reads the body of the call, which must have no content encoding, and at most [Calls]'s MaxBodyBytes. The
// error is a [*RequestError] or a [*limits.Error].
func (c *Call) ReadBody() ([]byte, error) {
	if coding := c.Request.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, &RequestError{http.StatusUnsupportedMediaType, "The body must not have a content encoding"}
	}
	body, err := c.Body.ReadAll(c.Request.ContentLength)
	_, isRefused := errors.AsType[*limits.Error](err)
	switch {
	case err == nil:
		return body, nil
	case isRefused:
		return nil, err
	case errors.Is(err, limits.ErrTooLarge):
		return nil, &RequestError{http.StatusRequestEntityTooLarge, "The body must be at most " + strconv.FormatInt(c.maxBodyBytes, 10) + " bytes"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &RequestError{http.StatusRequestTimeout, "The body did not arrive in time"}
	}
	return nil, &RequestError{http.StatusBadRequest, "The body could not be read to its end"}
}

// SetStatusHeaders sets the headers that go with the status of a refusal.
func (c *Call) SetStatusHeaders(status int) {
	switch status {
	case http.StatusUnauthorized:
		c.Writer.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusRequestTimeout:
		// What the client still sends must not be taken for another request.
		c.Writer.Header().Set("Connection", "close")
	}
}
