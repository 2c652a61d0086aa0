package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Names of the contenders of observed.
const (
	unobserved = "façade, token"
	observed   = "façade, token, traces"
)

// observing compares the façade with one that sends a trace of every call. Both authenticate their callers,
// and serve the same cluster.
func observing(clients int) func(context.Context, *lab, *report) error {
	return func(ctx context.Context, l *lab, r *report) error {
		bearer, err := callerToken(ctx, l.admin)
		if err != nil {
			return err
		}
		sink, err := startTraceSink(ctx)
		if err != nil {
			return err
		}
		defer sink.stop()
		c := &comparison{
			name: fmt.Sprintf("observed, %d", clients), clients: clients,
			rounds: l.options.roundsOf(60), slice: 300 * time.Millisecond,
		}
		for _, each := range []struct {
			name        string
			environment []string
		}{{unobserved, nil}, {observed, sink.environment()}} {
			process, err := startTokenFacade(ctx, l.options.operator, l.cluster.operatorKubeconfig(), each.environment...)
			if err != nil {
				for _, started := range c.contenders {
					started.stop()
				}
				return err
			}
			c.contenders = append(c.contenders, process.contender(each.name, bearer))
		}
		results, err := l.compare(ctx, c)
		if err != nil {
			return err
		}
		if sink.batches.Load() == 0 {
			return errors.New("no traces were sent")
		}
		without, with := results[unobserved], results[observed]
		r.add(without)
		r.add(with, atMost("time / without", medianRatio(without.rates, with.rates), 1.10, ""))
		return nil
	}
}

// traceSink takes traces by OTLP over HTTP and forgets them: a collector works elsewhere, and its work is not
// what is measured.
type traceSink struct {
	address string
	batches atomic.Int64
	stop    func()
}

func startTraceSink(ctx context.Context) (*traceSink, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	sink := &traceSink{address: listener.Addr().String()}
	server := &http.Server{ReadHeaderTimeout: startTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a batch that is cut off is none
		sink.batches.Add(1)
		w.Header().Set("Content-Type", "application/x-protobuf")
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // until it is closed
	}()
	sink.stop = func() {
		_ = server.Close() // what is under way has been measured
		<-ended
	}
	return sink, nil
}

// environment makes a program send a trace of every call.
func (s *traceSink) environment() []string {
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + s.address, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_TRACES_SAMPLER=always_on",
	}
}
