package robustness_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

const (
	lockExtension    = "urn:cline:forrst:ext:atomic-lock"
	fencingExtension = "urn:k8s:forrst:ext:fencing"
	renewFunction    = "urn:k8s:forrst:ext:atomic-lock:fn:renew"
)

// patience is how long a client waits for an answer beyond the wait that it asked for. A
// replica gives up after 5 s.
const patience = 8 * time.Second

// answer is a Forrst response.
type answer struct {
	Result     json.RawMessage `json:"result"`
	Errors     []answerError   `json:"errors"`
	Extensions []struct {
		URN  string         `json:"urn"`
		Data map[string]any `json:"data"`
	} `json:"extensions"`
}

type answerError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// caller is one client. It shares no connection with other clients.
type caller struct {
	number   int
	replicas []string
	http     *http.Client
	history  *history
	// running counts the calls to each replica that are under way; all callers share it.
	running *running
	// token is the bearer token, or empty.
	token string
}

// running counts calls by replica. Safe for concurrent use.
type running struct{ counts [8]atomic.Int64 }

func (r *running) at(replica int) int { return int(r.counts[replica].Load()) }

func newCaller(number int, replicas []string, history *history, running *running) *caller {
	return &caller{number: number, replicas: replicas, history: history, running: running, http: &http.Client{Transport: &http.Transport{}}}
}

// do sends the operation and records its outcome. If ctx ends first, the client hangs up.
func (c *caller) do(ctx context.Context, op operation) operation {
	ctx, cancel := context.WithTimeout(ctx, op.wait+patience)
	defer cancel()
	op.client = c.number
	c.running.counts[op.replica].Add(1)
	defer c.running.counts[op.replica].Add(-1)
	body := op.request()
	op.sent = c.history.now()
	response, err := c.post(ctx, c.replicas[op.replica], c.tokenFor(op), body)
	op.answered = c.history.now()
	if err != nil {
		op.outcome, op.said, op.hungUp = unanswered, err.Error(), ctx.Err() != nil
	} else {
		op.judge(response)
	}
	c.history.add(op)
	return op
}

// invalidToken is the bearer token of strangers.
const invalidToken = "invalid"

func (c *caller) tokenFor(op operation) string {
	if op.isStranger {
		return invalidToken
	}
	return c.token
}

func (c *caller) post(ctx context.Context, replica, token string, body []byte) (*answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+replica+"/forrst", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var decoded answer
	if err := json.Unmarshal(content, &decoded); err != nil {
		return nil, fmt.Errorf("HTTP %d: %w", response.StatusCode, err)
	}
	return &decoded, nil
}

// request returns the body of the request for the operation.
func (o *operation) request() []byte {
	call := map[string]any{"function": "forrst.ping"}
	body := map[string]any{"protocol": map[string]string{"name": "forrst", "version": "0.1.0"}, "id": "1", "call": call}
	arguments := map[string]any{"key": "lock:" + o.key}
	switch o.kind {
	case acquire:
		options := map[string]any{"key": o.key, "scope": "global", "owner": o.owner, "ttl": milliseconds(o.ttl), "auto_release": false}
		if o.wait > 0 {
			options["block"] = milliseconds(o.wait)
		}
		body["extensions"] = []any{map[string]any{"urn": lockExtension, "options": options}}
	case renew:
		call["function"] = renewFunction
		arguments["owner"], arguments["ttl"] = cmp.Or(o.proof, o.owner), milliseconds(o.ttl)
	case release:
		call["function"] = "forrst.locks.release"
		arguments["owner"] = cmp.Or(o.proof, o.owner)
	case forceRelease:
		call["function"] = "forrst.locks.forceRelease"
	case status:
		call["function"] = "forrst.locks.status"
	default:
		panic("clients do not ask for a " + o.kind)
	}
	if o.kind != acquire {
		call["arguments"] = arguments
	}
	content, err := json.Marshal(body)
	if err != nil {
		panic(err) // Only maps of texts and numbers.
	}
	return content
}

func milliseconds(length time.Duration) map[string]any {
	return map[string]any{"value": length.Milliseconds(), "unit": "millisecond"}
}

// judge reads the outcome from the answer.
func (o *operation) judge(response *answer) {
	if len(response.Errors) > 0 {
		code, message := response.Errors[0].Code, response.Errors[0].Message
		o.said = code + ": " + message
		o.outcome = outcomeOf(code)
		return
	}
	o.outcome = done
	for _, extension := range response.Extensions {
		if extension.URN == fencingExtension {
			o.token = tokenIn(extension.Data)
		}
	}
	if o.kind != status && o.kind != renew {
		return
	}
	var result map[string]any
	if err := json.Unmarshal(response.Result, &result); err != nil {
		o.outcome, o.said = "nonsense", err.Error()
		return
	}
	if o.kind == renew {
		o.token = max(o.token, tokenIn(result))
		return
	}
	if locked, _ := result["locked"].(bool); !locked {
		o.outcome = notFound
		return
	}
	o.holder, _ = result["owner"].(string)
}

func tokenIn(data map[string]any) int64 {
	for _, name := range []string{"token", "fencing_token"} {
		var token int64
		switch value := data[name].(type) {
		case float64:
			token = int64(value)
		case string:
			_, _ = fmt.Sscan(value, &token) // Zero is no token.
		}
		if token > 0 {
			return token
		}
	}
	return 0
}

// outcomeOf returns the outcome for an error code. An unknown outcome fails the run.
func outcomeOf(code string) outcome {
	switch code {
	case "LOCK_ACQUISITION_FAILED":
		return held
	case "LOCK_TIMEOUT":
		return timedOut
	case "LOCK_NOT_FOUND", "LOCK_EXPIRED":
		return notFound
	case "LOCK_OWNERSHIP_MISMATCH":
		return mismatch
	case "UNAUTHORIZED":
		return unauthenticated
	case "LOCK_REFUSED":
		return refused
	}
	// An API server that has just started refuses the operator's requests until it has
	// read the roles. Callers see an internal error.
	if slices.Contains([]string{"UNAVAILABLE", "INTERNAL_ERROR", "DEADLINE_EXCEEDED", "CANCELLED"}, code) {
		return unanswered
	}
	return outcome(refusedWith + code)
}
