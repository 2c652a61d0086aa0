package servertime

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const maxRoundTrip = 30 * time.Second

// world is a server and a local clock with a known offset.
type world struct {
	offset, now time.Duration
}

// response draws a response that takes up to maxRoundTrip, and advances the time.
func (w *world) response(t *rapid.T) observation {
	w.now += time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "pause"))
	roundTrip := rapid.Int64Range(0, int64(maxRoundTrip)).Draw(t, "round trip")
	sent := w.now
	dated := sent + time.Duration(rapid.Int64Range(0, roundTrip).Draw(t, "until the date")) + w.offset
	w.now += time.Duration(roundTrip)
	return observation{sent: sent, received: w.now, date: floor(dated)}
}

// floor rounds down to whole seconds, also before zero.
func floor(d time.Duration) time.Duration {
	if below := d % time.Second; below < 0 {
		return d - below - time.Second
	}
	return d.Truncate(time.Second)
}

func offsets() *rapid.Generator[time.Duration] {
	return rapid.OneOf(
		rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(-int64(2*time.Second), int64(2*time.Second)).Draw(t, "ns"))
		}),
		rapid.Custom(func(t *rapid.T) time.Duration {
			const years = 80 * 365 * 24 * time.Hour
			return time.Duration(rapid.Int64Range(-int64(years), int64(years)).Draw(t, "ns"))
		}),
	)
}

func begin(o observation) estimate {
	return estimate{offset: o.offset(), at: o.received}.with(o)
}

func checkConstantOffset(t *rapid.T) {
	world := world{offset: offsets().Draw(t, "offset")}
	seen := world.response(t)
	known := begin(seen)
	for range rapid.IntRange(0, 20).Draw(t, "responses") {
		seen = world.response(t)
		before := known
		known = known.with(seen)
		if widest := before.aged(seen.received); known.offset.low < widest.low || known.offset.high > widest.high {
			t.Fatalf("%v was begun anew, though %v contradicts nothing in %v", known.offset, seen, before)
		}
	}
	if world.offset < known.offset.low || world.offset > known.offset.high {
		t.Fatalf("%v does not contain the offset %s", known.offset, world.offset)
	}
	distance, width := (known.correction - world.offset).Abs(), known.offset.high-known.offset.low
	if distance > width || width > resolution+seen.received-seen.sent {
		t.Fatalf("corrected by %s instead of %s, the width of %v being %s", known.correction, world.offset, known.offset, width)
	}
}

func TestConstantOffset(t *testing.T) { rapid.Check(t, checkConstantOffset) }

func FuzzConstantOffset(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkConstantOffset)) }

// After any step of the clocks, one response corrects the estimate.
func TestOneResponseAfterAStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := world{offset: offsets().Draw(t, "offset")}
		known := begin(world.response(t))
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			for range rapid.IntRange(0, 5).Draw(t, "responses") {
				known = known.with(world.response(t))
			}
			step := offsets().Draw(t, "step") / 100
			world.now += step
			world.offset -= step
			seen := world.response(t)
			known = known.with(seen)
			if distance := (known.correction - world.offset).Abs(); distance > resolution+seen.received-seen.sent {
				t.Fatalf("corrected by %s instead of %s after %v", known.correction, world.offset, seen)
			}
		}
	})
}

// drifting answers every two seconds, dated by a clock that gains by the given rate.
func drifting(known estimate, from time.Duration, perMillion float64, responses int) (estimate, time.Duration) {
	now := from
	for range responses {
		now += 2*time.Second + 137*time.Millisecond
		seen := observation{sent: now, received: now + 2*time.Millisecond}
		seen.date = floor(now + time.Millisecond + time.Duration(float64(now)*perMillion/1e6))
		known = known.with(seen)
	}
	return known, time.Duration(float64(now) * perMillion / 1e6)
}

func TestNarrowsToMilliseconds(t *testing.T) {
	known, offset := drifting(begin(observation{}), 0, 0, 100)
	if width := known.offset.high - known.offset.low; width > 50*time.Millisecond || offset < known.offset.low || offset > known.offset.high {
		t.Errorf("got %v", known.offset)
	}
}

func TestDrift(t *testing.T) {
	for _, perMillion := range []float64{-190, -50, 50, 190} {
		known, offset := drifting(begin(observation{}), 0, perMillion, 20_000)
		if width := known.offset.high - known.offset.low; width > 60*time.Millisecond || (known.correction-offset).Abs() > width {
			t.Errorf("at %v ppm: got %v and a correction of %s instead of %s", perMillion, known.offset, known.correction, offset)
		}
	}
	// Faster than what is allowed for: the interval is left, and begun anew.
	known, offset := drifting(begin(observation{}), 0, 10_000, 20_000)
	if (known.correction - offset).Abs() > 500*time.Millisecond {
		t.Errorf("corrected by %s instead of %s", known.correction, offset)
	}
}

func TestContradictionMovesTheCorrectionLittle(t *testing.T) {
	const hour, ms = time.Hour, time.Millisecond
	known := estimate{offset: interval{-hour, -hour + ms}, correction: -hour}
	// Another server is a few milliseconds behind the first.
	known = known.with(observation{sent: 500 * ms, received: 500 * ms, date: -hour - 502*ms})
	if want := (interval{-hour - 1002*ms, -hour - 2*ms}); known.offset != want {
		t.Errorf("got the interval %v, want %v", known.offset, want)
	}
	if known.correction != -hour-2*ms {
		t.Errorf("got a correction by %s", known.correction)
	}
}
