package rest

import (
	"errors"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock/problems"
)

// maxRequestBytes is the largest body that is read: many times what all members together may have.
const maxRequestBytes = 64 << 10

// receive checks type and size and reads the body.
func receive(r *http.Request, counted *limits.Body) ([]byte, error) {
	isJSON := false
	if contentType := r.Header.Get("Content-Type"); contentType != "" {
		mediaType, _, err := mime.ParseMediaType(contentType)
		if isJSON = err == nil && mediaType == jsonType; !isJSON {
			return nil, problems.New(problems.UnsupportedMediaType, "The content type must be application/json")
		}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, problems.New(problems.UnsupportedMediaType, "The body must not have a content encoding")
	}
	body, err := counted.ReadAll(r.ContentLength)
	_, isRefused := errors.AsType[*limits.Error](err)
	switch {
	case isRefused:
		return nil, err
	case errors.Is(err, limits.ErrTooLarge):
		return nil, problems.New(problems.BodyTooLarge, "The body must be at most "+strconv.Itoa(maxRequestBytes)+" bytes")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problems.New(problems.BodyTimeout, "The body did not arrive in time")
	case err != nil:
		return nil, problems.New(problems.InvalidRequest, "The body could not be read to its end")
	case len(body) > 0 && !isJSON:
		return nil, problems.New(problems.UnsupportedMediaType, "The content type must be application/json, and there is none")
	}
	return body, nil
}
