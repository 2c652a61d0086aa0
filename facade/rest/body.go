package rest

import (
	"errors"
	"mime"
	"net/http"

	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/problems"
)

// maxRequestBytes is the largest body that is read: many times what all members together may have.
const maxRequestBytes = 64 << 10

// unreadable are the kinds of problems with a body that cannot be read, by their status.
var unreadable = map[int]*problems.Kind{
	http.StatusUnsupportedMediaType:  problems.UnsupportedMediaType,
	http.StatusRequestEntityTooLarge: problems.BodyTooLarge,
	http.StatusRequestTimeout:        problems.BodyTimeout,
	http.StatusBadRequest:            problems.InvalidRequest,
}

// receive checks type and size and reads the body.
func (c *call) receive() ([]byte, error) {
	contentType := c.Request.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(contentType); contentType != "" && (err != nil || mediaType != jsonType) {
		return nil, problems.New(problems.UnsupportedMediaType, "The content type must be application/json")
	}
	body, err := c.ReadBody()
	if fault, ok := errors.AsType[*server.RequestError](err); ok {
		return nil, problems.New(unreadable[fault.Status], fault.Message)
	}
	if len(body) > 0 && contentType == "" {
		return nil, problems.New(problems.UnsupportedMediaType, "The content type must be application/json, and there is none")
	}
	return body, err
}
