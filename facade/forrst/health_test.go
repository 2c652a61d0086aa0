package forrst_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func check(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// healthFixture has one source of components that are always there.
func healthFixture(tb testing.TB, components ...forrst.Component) *fixture {
	tb.Helper()
	return newFixtureWith(tb, func(config *testfacade.Settings) {
		config.Components = []forrst.ComponentSource{forrst.Components(components[:1]), forrst.Components(components[1:])}
		config.Version = "1.2.3"
	})
}

func TestHealthIsThatOfTheWorstComponent(t *testing.T) {
	broken, slow := errors.New("dial 10.0.0.1: refused"), fmt.Errorf("lagging: %w", forrst.ErrDegraded)
	cases := map[string]struct {
		components []forrst.Component
		want       string
	}{
		"all well":   {[]forrst.Component{{Name: "a", Check: check(nil)}, {Name: "b", Check: check(nil)}}, "healthy"},
		"one slow":   {[]forrst.Component{{Name: "a", Check: check(slow)}, {Name: "b", Check: check(nil)}}, "degraded"},
		"one broken": {[]forrst.Component{{Name: "a", Check: check(slow)}, {Name: "b", Check: check(broken)}}, "unhealthy"},
		"a panic":    {[]forrst.Component{{Name: "a", Check: func(context.Context) error { panic("x") }}}, "unhealthy"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := healthFixture(t, test.components...)
			for _, function := range []string{"urn:cline:forrst:fn:health", "urn:cline:forrst:ext:diagnostics:fn:health", "forrst.health"} {
				got := f.post(envelopeWith(function, "", ""))
				if got.status != 200 || !strings.HasPrefix(string(got.Result), `{"status":"`+test.want+`","timestamp":"2024-03-15T10:30:00Z","version":"1.2.3","components":{`) {
					t.Errorf("%s: status %d, %s", function, got.status, got.body)
				}
				if strings.Contains(got.body, "10.0.0.1") {
					t.Errorf("an answer tells about the inside: %s", got.body)
				}
			}
			if test.want == "unhealthy" && !strings.Contains(f.log.String(), "A component is not healthy") {
				t.Error("nothing was logged")
			}
		})
	}
}

func TestHealthTellsWhatIsAskedFor(t *testing.T) {
	f := healthFixture(t, forrst.Component{Name: "kubernetes_api", Check: check(nil)}, forrst.Component{Name: "cache", Check: check(errors.New("stale"))})
	const (
		start     = `"timestamp":"2024-03-15T10:30:00Z"`
		checked   = `"latency":{"value":0,"unit":"millisecond"}`
		lastCheck = `"last_check":"2024-03-15T10:30:00Z"`
		well      = `"kubernetes_api":{"status":"healthy",` + checked + `,` + lastCheck + `}`
		ill       = `"cache":{"status":"unhealthy",` + checked + `,"message":"The component does not work",` + lastCheck + `}`
	)
	for given, want := range map[string]string{
		``:                                   `{"status":"unhealthy",` + start + `,"version":"1.2.3","components":{` + ill + `,` + well + `}}`,
		`"component":"kubernetes_api"`:       `{"status":"healthy",` + start + `,"version":"1.2.3","components":{` + well + `}}`,
		`"component":"self"`:                 `{"status":"healthy",` + start + `}`,
		`"component":null`:                   `{"status":"unhealthy",` + start + `,"version":"1.2.3","components":{` + ill + `,` + well + `}}`,
		`"include_details":false`:            `{"status":"unhealthy",` + start + `,"version":"1.2.3","components":{"cache":{"status":"unhealthy"},"kubernetes_api":{"status":"healthy"}}}`,
		`"include_details":true,"future":[]`: `{"status":"unhealthy",` + start + `,"version":"1.2.3","components":{` + ill + `,` + well + `}}`,
	} {
		got := f.post(envelopeWith("forrst.health", arguments(given), ""))
		if string(got.Result) != want || got.status != 200 {
			t.Errorf("%s: status %d, got %s\nwant %s", given, got.status, got.body, want)
		}
	}
	f.wantProblems(f.post(envelopeWith("forrst.health", arguments(`"component":"nothing","include_details":1`), "")), 400,
		"INVALID_ARGUMENTS /call/arguments/component", "INVALID_ARGUMENTS /call/arguments/include_details")
	f.wantProblems(f.post(envelopeWith("forrst.health", arguments(`"component":7`), "")), 400, "INVALID_ARGUMENTS /call/arguments/component")
}

func TestHealthDoesNotWaitForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := healthFixture(t, forrst.Component{Name: "a", Check: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		start := time.Now()
		got := f.post(envelopeWith("forrst.health", "", ""))
		if took := time.Since(start); took != 2*time.Second || !strings.Contains(got.body, `"message":"The component did not answer in time"`) {
			t.Errorf("after %s: %s", took, got.body)
		}
	})
}

// counted is a component that counts its checks. Each lasts until it is told to end.
func counted(count *atomic.Int32, end <-chan struct{}) forrst.Component {
	return forrst.Component{Name: "a", Check: func(ctx context.Context) error {
		count.Add(1)
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

func TestAComponentIsCheckedOnceASecond(t *testing.T) {
	var checks atomic.Int32
	end := make(chan struct{})
	close(end)
	f := healthFixture(t, counted(&checks, end))
	want := func(title string, want int32) {
		t.Helper()
		for _, details := range []string{"", `"include_details":false`, `"component":"a"`} {
			if got := f.post(envelopeWith("forrst.health", arguments(details), "")); !strings.Contains(got.body, `"a":{"status":"healthy"`) {
				t.Errorf("%s: %s", title, got.body)
			}
		}
		if got := checks.Load(); got != want {
			t.Errorf("%s: %d checks, want %d", title, got, want)
		}
	}
	want("at first", 1)
	f.clock.Step(time.Second - time.Millisecond)
	want("within a second", 1)
	f.clock.Step(time.Millisecond)
	want("after a second", 2)
	f.clock.SetTime(f.clock.Now().Add(-time.Hour))
	want("after the clock was set back", 3)
}

func TestCallersAtOnceShareOneCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int32
		end := make(chan struct{})
		f := healthFixture(t, counted(&checks, end))
		gone, leave := context.WithCancel(t.Context())
		answers := make(chan answer, 3)
		ask := func(ctx context.Context) {
			request := httptest.NewRequestWithContext(ctx, http.MethodPost, forrst.Path, strings.NewReader(envelopeWith("forrst.health", "", "")))
			go func() { answers <- f.serve(request) }()
			synctest.Wait()
		}
		ask(gone)
		ask(t.Context())
		ask(t.Context())
		leave()
		if got := <-answers; got.status == 200 && !strings.Contains(got.body, "unhealthy") {
			t.Errorf("the caller that has gone: %s", got.body)
		}
		close(end)
		for range 2 {
			if got := <-answers; !strings.Contains(got.body, `"a":{"status":"healthy"`) {
				t.Errorf("another caller: %s", got.body)
			}
		}
		if checks.Load() != 1 {
			t.Errorf("%d checks", checks.Load())
		}
	})
}
