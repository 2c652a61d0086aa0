package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

// Names of the contenders of observed.
const (
	unobserved = "façade, token"
	scraped    = "façade, token, metrics"
	observed   = "façade, token, metrics, traces"
)

// observing compares the façade with one whose metrics are read, and with one that sends a trace of every call
// besides. All authenticate their callers, and serve the same cluster.
func observing(clients int) func(context.Context, *lab.Lab, *report.Report) error {
	return func(ctx context.Context, l *lab.Lab, r *report.Report) error {
		bearer, err := lab.CallerToken(ctx, l.Admin)
		if err != nil {
			return err
		}
		sink, err := startTraceSink(ctx)
		if err != nil {
			return err
		}
		defer sink.stop()
		reader, err := lab.NewScraper(ctx, l.Admin)
		if err != nil {
			return err
		}
		defer reader.Stop()
		c := &measure.Comparison{
			Name: fmt.Sprintf("observed, %d", clients), Clients: clients,
			Rounds: l.Options.RoundsOf(30), Slice: 300 * time.Millisecond,
		}
		for _, each := range []struct {
			name        string
			isScraped   bool
			environment []string
		}{{unobserved, false, nil}, {scraped, true, nil}, {observed, true, sink.environment()}} {
			var flags []string
			if each.isScraped {
				address, err := lab.FreeAddress(ctx)
				if err != nil {
					return err
				}
				flags = []string{"--metrics-bind-address=" + address}
				reader.Addresses = append(reader.Addresses, address)
			}
			process, err := lab.StartTokenFacade(ctx, l.Options.Operator, l.Cluster.OperatorKubeconfig(), flags, each.environment...)
			if err != nil {
				for _, started := range c.Contenders {
					started.Stop()
				}
				return err
			}
			c.Contenders = append(c.Contenders, tokenContender(process, each.name, bearer))
		}
		reader.Start(ctx)
		results, err := l.Compare(ctx, c)
		if err != nil {
			return err
		}
		if sink.batches.Load() == 0 {
			return errors.New("no traces were sent")
		}
		if reader.Scrapes.Load() == 0 {
			return errors.New("no metrics were read")
		}
		without, measured, with := results[unobserved], results[scraped], results[observed]
		r.Add(without)
		r.Add(measured, report.AtMost("time / without", measure.Ratio(measured, without, measure.Time), 1.02, ""))
		r.Add(with, report.AtMost("time / without", measure.Ratio(with, without, measure.Time), 1.10, ""))
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
	server := &http.Server{ReadHeaderTimeout: lab.StartTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
