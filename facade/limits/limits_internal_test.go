package limits

import (
	"context"
	"testing"
)

// Callers come and go, and must not be remembered for ever.
func TestCallersWithoutCallsAreForgotten(t *testing.T) {
	limiter, err := New(Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, err := limiter.Admit(Caller{user: "a"}, Work)
	if err != nil {
		t.Fatal(err)
	}
	second, err := limiter.Admit(Caller{user: "a"}, Work)
	if err != nil {
		t.Fatal(err)
	}
	err = second.Wait(t.Context(), func(context.Context) error {
		first.Release()
		if len(limiter.callers) != 1 {
			t.Error("a caller that waits was forgotten")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
	if len(limiter.callers) != 0 || limiter.Counts() != (Counts{}) {
		t.Errorf("%d callers are left, %+v", len(limiter.callers), limiter.Counts())
	}
}

func TestAPermitCountsOnceHoweverOftenItIsReleased(t *testing.T) {
	limiter, err := New(Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, err := limiter.Admit(Caller{user: "a"}, Work)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := limiter.Admit(Caller{user: "a"}, Work); err != nil {
		t.Fatal(err)
	}
	first.Release()
	first.Release()
	if got := limiter.Counts(); got != (Counts{Running: 1}) {
		t.Errorf("%+v are counted, want the second call", got)
	}
}
