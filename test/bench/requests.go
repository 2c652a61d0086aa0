package main

import (
	"bytes"
	"context"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

// requestCounter reads the request counter of the API server.
type requestCounter struct{ client rest.Interface }

// requestCounts counts requests about one resource.
type requestCounts struct{ writes, reads float64 }

// read returns the counts of all requests about a resource so far, without watches, which
// stay open instead of being sent per lock. A read costs the API server about as much as ten
// locks, so callers read outside of timed sections.
func (r *requestCounter) read(ctx context.Context, resource string) (requestCounts, error) {
	text, err := r.client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return requestCounts{}, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return requestCounts{}, err
	}
	var counts requestCounts
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		if label(metric, "resource") != resource {
			continue
		}
		switch label(metric, "verb") {
		case "WATCH":
		case "GET", "LIST":
			counts.reads += metric.GetCounter().GetValue()
		default:
			counts.writes += metric.GetCounter().GetValue()
		}
	}
	return counts, nil
}

func (c requestCounts) since(before requestCounts) requestCounts {
	return requestCounts{writes: c.writes - before.writes, reads: c.reads - before.reads}
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
