package rates_test

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"forrst.dev/lock-operator/webhook/rates"
)

func TestAFullMapForgetsWhatIsAsNew(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	made := rates.NewMap[int](2, func() *rate.Limiter { return rate.NewLimiter(rate.Every(10*time.Second), 1) })
	first, second := made.Of(1, now), made.Of(2, now)
	if first == second || made.Of(1, now) != first {
		t.Fatal("a key has no rate of its own")
	}
	first.AllowN(now, 1)
	second.AllowN(now, 1)
	shared := made.Of(3, now)
	if shared == first || made.Of(4, now) != shared {
		t.Error("the keys beyond do not share a rate")
	}
	shared.AllowN(now, 1)
	now = now.Add(10 * time.Second)
	if made.Of(5, now) == shared || made.Len() != 1 {
		t.Errorf("%d rates are kept after all have the whole burst again", made.Len())
	}
}

func TestAFullMapIsSweptOnceInASecond(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	made := rates.NewMap[int](2, func() *rate.Limiter { return rate.NewLimiter(rate.Every(time.Second), 1) })
	made.Of(1, now).AllowN(now, 1)
	made.Of(2, now).AllowN(now, 1)
	now = now.Add(900 * time.Millisecond)
	shared := made.Of(3, now)
	now = now.Add(200 * time.Millisecond)
	if made.Of(4, now) != shared {
		t.Error("the map was swept again after 0.2 s")
	}
	now = now.Add(800 * time.Millisecond)
	if made.Of(4, now) == shared {
		t.Error("the map was not swept after a second")
	}
}
