// Package collector receives traces by the OpenTelemetry protocol, for tests.
package collector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Collector keeps all spans that it receives. It is safe for concurrent use.
type Collector struct {
	// Endpoint is where it listens, as OTEL_EXPORTER_OTLP_ENDPOINT wants it.
	Endpoint string

	stop func()

	mu       sync.Mutex
	spans    []*Span
	received []byte
	header   map[string][]string
}

// Span is one that was received, with the attributes of what has sent it.
type Span struct {
	*tracepb.Span

	Resource map[string]string
}

// Start returns a collector that listens for the protocol, grpc or http/protobuf, on a loopback port. It
// must be stopped.
func Start(ctx context.Context, protocol string) (*Collector, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Collector{Endpoint: "http://" + listener.Addr().String()}
	var serving sync.WaitGroup
	var serve func() error
	if protocol == "grpc" {
		server := grpc.NewServer()
		collectortrace.RegisterTraceServiceServer(server, &service{collector: c})
		serve, c.stop = func() error { return server.Serve(listener) }, server.Stop
	} else {
		server := &http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
		serve, c.stop = func() error { return server.Serve(listener) }, func() { _ = server.Close() }
	}
	serving.Go(func() { _ = serve() })
	stopServing := c.stop
	c.stop = func() {
		stopServing()
		serving.Wait()
	}
	return c, nil
}

// Stop ends the collector. Its spans stay.
func (c *Collector) Stop() { c.stop() }

// Spans returns what was received so far, by the times of their beginnings.
func (c *Collector) Spans() []*Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := slices.Clone(c.spans)
	slices.SortFunc(spans, func(a, b *Span) int { return int(a.GetStartTimeUnixNano()) - int(b.GetStartTimeUnixNano()) })
	return spans
}

// Bytes returns everything that was received, as it was sent.
func (c *Collector) Bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.received)
}

// Header returns the last value of a header, or of gRPC metadata, that came with spans.
func (c *Collector) Header(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if values := c.header[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// take keeps one request.
func (c *Collector) take(request *collectortrace.ExportTraceServiceRequest, header map[string][]string) error {
	text, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received, c.header = append(c.received, text...), header
	for _, from := range request.GetResourceSpans() {
		resource := Attributes(from.GetResource().GetAttributes())
		for _, scope := range from.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, &Span{Span: span, Resource: resource})
			}
		}
	}
	return nil
}

// Attributes returns attributes as texts.
func Attributes(attributes []*commonpb.KeyValue) map[string]string {
	texts := map[string]string{}
	for _, each := range attributes {
		switch value := each.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			texts[each.GetKey()] = value.StringValue
		case *commonpb.AnyValue_IntValue:
			texts[each.GetKey()] = fmt.Sprint(value.IntValue)
		default:
			texts[each.GetKey()] = each.GetValue().String()
		}
	}
	return texts
}

// Text returns the attribute of the span, or "".
func (s *Span) Text(attribute string) string { return Attributes(s.GetAttributes())[attribute] }

type service struct {
	collectortrace.UnimplementedTraceServiceServer

	collector *Collector
}

// Export implements the service over gRPC.
func (s *service) Export(ctx context.Context, request *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	header, _ := metadata.FromIncomingContext(ctx)
	return &collectortrace.ExportTraceServiceResponse{}, s.collector.take(request, header)
}

// ServeHTTP implements the service over HTTP.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := c.serve(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, _ := proto.Marshal(&collectortrace.ExportTraceServiceResponse{}) // an empty message
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer) // a sender that has gone needs no answer
}

func (c *Collector) serve(r *http.Request) error {
	if r.URL.Path != "/v1/traces" {
		return errors.New("no such path")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var request collectortrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	return c.take(&request, r.Header)
}
