package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

var errTooLarge = fmt.Errorf("the answer has more than %d bytes", MaxAnswerBytes)

// read reads an answer to its end, so that the connection can be used again.
func read(response *http.Response) ([]byte, error) {
	if response.ContentLength > MaxAnswerBytes {
		return nil, errTooLarge
	}
	var body bytes.Buffer
	if size := response.ContentLength; size > 0 {
		body.Grow(int(size) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(io.LimitReader(response.Body, MaxAnswerBytes+1)); err != nil {
		return nil, err
	}
	if body.Len() > MaxAnswerBytes {
		return nil, errTooLarge
	}
	return body.Bytes(), nil
}

// decode decodes the body of an answer. Its HTTP status means nothing beside an envelope.
func decode(status int, body []byte, id string) (*envelope.Response, error) {
	response, err := envelope.DecodeResponse(body)
	switch {
	case err != nil:
		return nil, noEnvelope(status, err)
	case response.ID == nil && len(response.Errors) > 0: // It did not get as far as the id.
	case response.ID == nil || *response.ID != id:
		return nil, &CallError{Kind: WrongID, Reason: "the answer is to another call", Status: status}
	}
	return response, nil
}

// failure judges a call without an answer.
func failure(ctx context.Context, isSent bool, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errTimeout) && !isSent:
		return &CallError{Kind: Unreachable, Reason: "no connection within the timeout of the route", IsUnsent: true, cause: err}
	case errors.Is(context.Cause(ctx), errTimeout):
		return &CallError{Kind: TimedOut, Reason: "no answer within the timeout of the route", cause: err}
	case ctx.Err() != nil:
		return &CallError{Kind: Disconnected, Reason: "the call was given up", MayRun: isSent, IsUnsent: !isSent, cause: context.Cause(ctx)}
	case !isSent:
		return unreachable(err)
	}
	return disconnected(err)
}
