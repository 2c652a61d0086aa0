package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// servicePath is the path on which the echo speaks the protocol. On every other path it
// returns the bare body.
const servicePath = "/service"

// RunEcho serves the echo on a free port, which it prints, until the input ends.
func RunEcho(in io.Reader, out io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(answerEcho)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if _, err := fmt.Fprintln(out, listener.Addr()); err != nil {
		return errors.Join(err, server.Close(), <-ended)
	}
	_, err = io.Copy(io.Discard, in)
	err = errors.Join(err, server.Close())
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func answerEcho(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == servicePath {
		echoArguments(w, r)
		return
	}
	echoBody(w, r)
}

// echoBody decodes a JSON object and sends it back, the least work of any service.
func echoBody(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

// forrstAnswer is the envelope of an answer in the protocol.
type forrstAnswer struct {
	Protocol json.RawMessage `json:"protocol"`
	ID       string          `json:"id"`
	Result   any             `json:"result"`
}

// echoArguments is a function in the protocol whose result is its arguments.
func echoArguments(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Protocol json.RawMessage `json:"protocol"`
		ID       string          `json:"id"`
		Call     struct {
			Arguments map[string]any `json:"arguments"`
		} `json:"call"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := forrstAnswer{Protocol: request.Protocol, ID: request.ID, Result: request.Call.Arguments}
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}
