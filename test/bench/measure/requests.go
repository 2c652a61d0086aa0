package measure

import (
	"bytes"
	"context"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

// RequestCounter reads the request counter of the API server.
type RequestCounter struct{ Client rest.Interface }

// RequestCounts counts requests about one resource.
type RequestCounts struct{ Writes, Reads float64 }

// Read returns the counts of all requests about a resource so far, without watches, which
// stay open instead of being sent per lock. A read costs the API server about as much as ten
// locks, so callers read outside of timed sections.
func (r *RequestCounter) Read(ctx context.Context, resource string) (RequestCounts, error) {
	text, err := r.Client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return RequestCounts{}, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return RequestCounts{}, err
	}
	var counts RequestCounts
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		if label(metric, "resource") != resource {
			continue
		}
		switch label(metric, "verb") {
		case "WATCH":
		case "GET", "LIST":
			counts.Reads += metric.GetCounter().GetValue()
		default:
			counts.Writes += metric.GetCounter().GetValue()
		}
	}
	return counts, nil
}

// Since returns the requests after an earlier count.
func (c RequestCounts) Since(before RequestCounts) RequestCounts {
	return RequestCounts{Writes: c.Writes - before.Writes, Reads: c.Reads - before.Reads}
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
