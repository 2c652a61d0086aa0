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

var (
	errTooLarge = fmt.Errorf("the answer has more than %d bytes", MaxAnswerBytes)
	errNoRoom   = errors.New("there was no room for the answer")
)

// answerStep is how much room is taken at a time for an answer of unknown length.
const answerStep = 64 << 10

// read reads an answer to its end, so that the connection can be used again. The room is taken before
// what it is for is read: the service may send faster than others give room back.
func read(response *http.Response, room Room) ([]byte, error) {
	size := response.ContentLength
	if size > MaxAnswerBytes {
		return nil, errTooLarge
	}
	var body bytes.Buffer
	if size >= 0 {
		if err := takeRoom(room, size); err != nil {
			return nil, err
		}
		body.Grow(int(size) + bytes.MinRead)
		_, err := body.ReadFrom(response.Body) // It ends there: net/http goes by the length, too.
		return body.Bytes(), err
	}
	for {
		if err := takeRoom(room, answerStep); err != nil {
			return nil, err
		}
		_, err := io.CopyN(&body, response.Body, answerStep)
		switch {
		case body.Len() > MaxAnswerBytes:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return body.Bytes(), nil
		case err != nil:
			return nil, err
		}
	}
}

func takeRoom(room Room, size int64) error {
	if err := room.Take(size); err != nil {
		return fmt.Errorf("%w: %w", errNoRoom, err)
	}
	return nil
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
