package otlp

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/tracing"
)

const (
	serviceName = "lock-operator"
	// StopTimeout is how long [Exporter.Stop] takes at most: what is not sent by then is lost.
	StopTimeout = 5 * time.Second
)

// Options configures an [Exporter].
type Options struct {
	// Version is the version of the service, as an attribute of its resource. Empty leaves it out.
	Version string
	// TellsAPIServer is that of [tracing.Options].
	TellsAPIServer bool
	// Clock paces the messages about spans that could not be sent, and is that of [tracing.Options]. Nil means the real clock.
	Clock clock.PassiveClock
	// Logger gets them, and what is wrong with the environment. Zero discards.
	Logger logr.Logger
}

// Exporter sends spans, in batches from the bounded queue of the SDK: what does not fit in is dropped, so that no call
// ever waits for the receiver. A nil *Exporter sends nothing.
type Exporter struct {
	provider *sdktrace.TracerProvider
	tracer   *tracing.Tracer
}

// Start returns an exporter that the environment configures, or nil if there is none, or none that is
// valid, which is logged: traces are never a reason not to serve. It makes no connection yet. It must be
// called once in a process, since it sets where OpenTelemetry reports errors.
func Start(ctx context.Context, options Options) *Exporter {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	chosen, err := protocolOf(os.Getenv)
	if err == nil && chosen == off {
		return nil
	}
	var exporter *Exporter
	if err == nil {
		err = checkBounds(os.Getenv)
	}
	if err == nil {
		exporter, err = start(ctx, options, chosen)
	}
	if err != nil {
		options.Logger.Error(err, "Traces are not sent")
		return nil
	}
	options.Logger.Info("Traces are sent", "protocol", string(chosen))
	return exporter
}

func start(ctx context.Context, options Options, chosen protocol) (*Exporter, error) {
	var logged refusal.Logged // A receiver can be away for long.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if logged.IsDue("traces", options.Clock.Now()) {
			options.Logger.Error(err, "Traces could not be sent")
		}
	}))
	otel.SetLogger(options.Logger.V(1))
	var sender sdktrace.SpanExporter
	var err error
	if chosen == overGRPC {
		sender, err = otlptracegrpc.New(ctx)
	} else {
		sender, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	described, err := describe(ctx, options.Version)
	if err != nil {
		options.Logger.Error(err, "Some attributes of the environment are left out of traces")
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(sender),
		sdktrace.WithResource(described),
		sdktrace.WithIDGenerator(ids{}),
	)
	tracer := tracing.New(provider, tracing.Options{
		IsByParent: isByParent(os.Getenv), TellsAPIServer: options.TellsAPIServer, Clock: options.Clock,
	})
	return &Exporter{provider: provider, tracer: tracer}, nil
}

// describe returns what is told of this process with all spans. The environment counts for more than what
// is known here.
func describe(ctx context.Context, version string) (*resource.Resource, error) {
	known := []attribute.KeyValue{attribute.String("service.name", serviceName)}
	if version != "" {
		known = append(known, attribute.String("service.version", version))
	}
	// In a cluster, it is the name of the pod.
	if name, err := os.Hostname(); err == nil {
		known = append(known, attribute.String("service.instance.id", name))
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(known...), resource.WithFromEnv())
}

// Tracer returns what makes the spans, nil for a nil exporter.
func (e *Exporter) Tracer() *tracing.Tracer {
	if e == nil {
		return nil
	}
	return e.tracer
}

// Stop sends what is left, and ends the connection, within [StopTimeout].
func (e *Exporter) Stop(ctx context.Context) {
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, StopTimeout)
	defer cancel()
	if err := e.provider.Shutdown(ctx); err != nil {
		otel.Handle(fmt.Errorf("send the last traces: %w", err))
	}
}
