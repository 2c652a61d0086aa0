package measure

import (
	"bytes"
	"context"
	"encoding/json"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// RequestCounter reads the request counter of the API server.
type RequestCounter struct {
	Client rest.Interface
	// ownReads counts the reads of locks that the counter has made.
	ownReads float64
}

// heartbeat is the lock that the operator renews all the time, whether or not anyone uses locks.
const heartbeat = "/apis/forrst.dev/v1alpha1/namespaces/forrst-system/locks/lock-operator--heartbeat"

// RequestCounts counts requests about one resource.
type RequestCounts struct{ Writes, Reads float64 }

// Read returns the counts of all requests about a resource so far, without watches, which
// stay open instead of being sent per lock. A read costs the API server about as much as ten
// locks, so callers read outside of timed sections. The writes of the heartbeat do not count.
func (r *RequestCounter) Read(ctx context.Context, resource string) (RequestCounts, error) {
	if resource != "locks" {
		return r.readAll(ctx, resource)
	}
	for {
		before, err := r.heartbeats(ctx)
		if err != nil {
			return RequestCounts{}, err
		}
		counts, err := r.readAll(ctx, resource)
		if err != nil {
			return RequestCounts{}, err
		}
		counts.Reads -= r.ownReads
		after, err := r.heartbeats(ctx)
		if err != nil {
			return RequestCounts{}, err
		}
		if after == before {
			counts.Writes -= before
			return counts, nil
		}
	}
}

// heartbeats returns how often the heartbeat was written.
func (r *RequestCounter) heartbeats(ctx context.Context) (float64, error) {
	text, err := r.Client.Get().AbsPath(heartbeat).DoRaw(ctx)
	r.ownReads++
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var object metav1.PartialObjectMetadata
	err = json.Unmarshal(text, &object)
	return float64(object.Generation), err
}

func (r *RequestCounter) readAll(ctx context.Context, resource string) (RequestCounts, error) {
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
