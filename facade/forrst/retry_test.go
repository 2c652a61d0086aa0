package forrst_test

import (
	"context"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

const retryURN = "urn:forrst:ext:retry"

func TestRetryGoesByTheFirstError(t *testing.T) {
	for code, want := range map[envelope.Code]string{
		envelope.RateLimited:           `{"allowed":true,"strategy":"fixed","after":{"value":60,"unit":"second"},"max_attempts":3}`,
		envelope.Unavailable:           `{"allowed":true,"strategy":"exponential","after":{"value":1,"unit":"second"},"max_attempts":5}`,
		envelope.DeadlineExceeded:      `{"allowed":true,"strategy":"immediate","max_attempts":1}`,
		envelope.InternalError:         `{"allowed":true,"strategy":"exponential","after":{"value":1,"unit":"second"},"max_attempts":3}`,
		envelope.DependencyError:       `{"allowed":true,"strategy":"exponential","after":{"value":2,"unit":"second"},"max_attempts":3}`,
		envelope.IdempotencyProcessing: `{"allowed":true,"strategy":"fixed","after":{"value":1,"unit":"second"},"max_attempts":3}`,
		envelope.ServerMaintenance:     `{"allowed":true,"strategy":"fixed","after":{"value":60,"unit":"second"},"max_attempts":1}`,
		envelope.FunctionMaintenance:   `{"allowed":true,"strategy":"fixed","after":{"value":60,"unit":"second"},"max_attempts":1}`,
		envelope.FunctionDisabled:      `{"allowed":true,"strategy":"fixed","after":{"value":30,"unit":"second"},"max_attempts":2}`,
		envelope.LockTimeout:           `{"allowed":true,"strategy":"exponential","after":{"value":1,"unit":"second"},"max_attempts":3}`,
		envelope.Forbidden:             `{"allowed":false}`,
		"ACME_BROKEN":                  `{"allowed":false}`,
	} {
		f := newFixture(t, function("f", func(context.Context) (any, error) {
			return nil, envelope.Errors{{Code: code, Message: "m"}, {Code: envelope.Unavailable, Message: "m"}}
		}))
		if got := f.post(envelopeWith("f", "", `{"urn":"`+retryURN+`"}`)); got.entry(retryURN) != want {
			t.Errorf("%s: %s", code, got.body)
		}
		if got := f.post(envelopeWith("f", "", "")); got.Extensions != nil {
			t.Errorf("unasked: %s", got.body)
		}
	}
}

func TestRetryIsAnsweredForEveryFailureAndNoSuccess(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "alice", time.Hour)
	asked := `{"urn":"` + retryURN + `"}`
	if got := f.post(envelopeWith(ping, "", asked)); got.status != 200 || got.Extensions != nil {
		t.Error(got.body)
	}
	if got := f.post(envelopeWith("unknown", "", asked)); got.status != 404 || got.entry(retryURN) != `{"allowed":false}` {
		t.Error(got.body)
	}
	got := f.post(envelopeWith(ping, "", asked+","+locked(`{"key":"k","scope":"global",`+ttl+`}`)))
	if got.status != 423 || got.entry(retryURN) != `{"allowed":true,"strategy":"exponential","after":{"value":1,"unit":"second"},"max_attempts":3}` {
		t.Error(got.body)
	}
}

func TestRetryAgreesWithTheDetails(t *testing.T) {
	limited := envelope.Error{Code: envelope.RateLimited, Message: "m"}.With(map[string]any{"retry_after": envelope.NewDuration(7 * time.Second)})
	f := newFixture(t, function("f", func(context.Context) (any, error) { return nil, &limited }))
	got := f.post(envelopeWith("f", "", `{"urn":"`+retryURN+`"}`))
	if got.entry(retryURN) != `{"allowed":true,"strategy":"fixed","after":{"value":7,"unit":"second"},"max_attempts":3}` {
		t.Error(got.body)
	}
}
