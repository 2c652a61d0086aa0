package forrst_test

import (
	"strings"
	"testing"

	"forrst.dev/lock-operator/facade/forrst"
)

// routed is a function "r" that runs elsewhere.
func routed() forrst.Function {
	f := function("r", result(`true`))
	f.IsRouted = true
	return f
}

func TestRoutedFunctionsJudgeExtensionsThemselves(t *testing.T) {
	f := newFixture(t, routed())
	for _, name := range []string{"dry-run", "simulation", "replay", "idempotency", "async", "priority"} {
		for _, dialect := range []string{"urn:forrst:ext:", "urn:cline:forrst:ext:"} {
			urn := dialect + name
			if got := f.post(envelopeWith("r", "", `{"urn":"`+urn+`"}`)); got.status != 200 || got.Extensions != nil {
				t.Errorf("%s: %s", urn, got.body)
			}
			if forrst.HandlesExtension(urn) {
				t.Errorf("%s is not passed on", urn)
			}
		}
	}
	for _, urn := range handledURNs {
		if !forrst.HandlesExtension(urn) {
			t.Errorf("%s is passed on", urn)
		}
	}
	if forrst.HandlesExtension("urn:acme:forrst:ext:atomic-lock") {
		t.Error("an extension of another vendor is not passed on")
	}
}

func TestDryRunOfARoutedFunctionTakesNoLock(t *testing.T) {
	lock := locked(`{"key":"k",` + ttl + `}`)
	for options, wantLocks := range map[string]int{`{"enabled":true}`: 0, `{"enabled":false}`: 1, `{}`: 1, `{"enabled":"yes"}`: 1} {
		f := newFixture(t, routed())
		got := f.post(envelopeWith("r", "", lock+`,{"urn":"urn:forrst:ext:dry-run","options":`+options+`}`))
		if requests := f.requests(); got.status != 200 || len(requests) != wantLocks || strings.Contains(got.body, "acquired") != (wantLocks > 0) {
			t.Errorf("%s: %v, %s", options, requests, got.body)
		}
	}
	f := newFixture(t, routed())
	got := f.post(envelopeWith("r", "", `{"urn":"urn:forrst:ext:dry-run","options":{"enabled":true}},`+locked(`{}`)))
	f.wantProblems(got, 400, "INVALID_ARGUMENTS /extensions/1/options/key", "INVALID_ARGUMENTS /extensions/1/options/ttl")
}

func TestWorkThatOutlivesItsAnswerTakesNoLock(t *testing.T) {
	f := newFixture(t, routed())
	lock, async := locked(`{"key":"k",`+ttl+`}`), `{"urn":"urn:forrst:ext:async"}`
	f.wantProblems(f.post(envelopeWith("r", "", lock+","+async)), 400, "EXTENSION_NOT_APPLICABLE /extensions/1")
	if got := f.post(envelopeWith(ping, "", lock+","+async)); got.status != 200 {
		t.Errorf("ping takes no hints: %s", got.body)
	}
}
