package report

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/test/bench/measure"
)

func once(value float64) measure.Spread { return measure.Single(value, measure.Window{}) }

func busily(value float64) measure.Spread { return measure.Single(value, measure.Window{Foreign: 1}) }

func TestVerdict(t *testing.T) {
	for name, test := range map[string]struct {
		figure Figure
		want   Verdict
	}{
		"as much as the least bound":             {AtLeast("x", once(0.9), 0.9), Passed},
		"less than the least bound":              {AtLeast("x", once(0.899), 0.9), Missed},
		"as much as the greatest bound":          {AtMost("x", once(64), 64, " KiB"), Passed},
		"more than the greatest bound":           {AtMost("x", once(64.1), 64, " KiB"), Missed},
		"outside of both bounds":                 {Between("x", once(1.11), 1, 1.1), Missed},
		"inside of both bounds":                  {Between("x", once(1.05), 1, 1.1), Passed},
		"a ratio without measurements":           {AtLeast("x", once(math.NaN()), 0), Missed},
		"without bounds":                         {Noted("x", once(12), ""), Unbounded},
		"a good number of a busy machine":        {AtLeast("x", busily(2), 0.9), Busy},
		"a bad number of a busy machine":         {AtLeast("x", busily(0.1), 0.9), Busy},
		"a busy machine without bounds":          {Noted("x", busily(12), ""), Unbounded},
		"a busy machine and nothing measured":    {AtLeast("x", busily(math.NaN()), 0.9), Missed},
		"a number without bounds, none measured": {Noted("x", once(math.NaN()), ""), Missed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.figure.Verdict(); got != test.want {
				t.Errorf("the verdict is %q, want %q", got, test.want)
			}
		})
	}
}

func TestReportFailsWithAScenarioThatWasNotMeasured(t *testing.T) {
	r := &Report{}
	r.Note("keys", "façade", AtLeast("ratio", once(1), 0.9))
	if r.Missed() != 0 || r.Unjudged() != 0 {
		t.Error("a report without a missed figure counts as missed")
	}
	r.Fail("hot key", errors.New("it broke"))
	if r.Missed() != 1 {
		t.Error("a scenario that was not measured does not count as missed")
	}
	var out strings.Builder
	r.Print(&out)
	if !strings.Contains(out.String(), "hot key: not measured: it broke") {
		t.Errorf("the report lacks the failure:\n%s", out.String())
	}
}

func TestReportOfABusyMachineHasNoVerdict(t *testing.T) {
	r := &Report{}
	r.Note("keys", "façade", AtLeast("ratio", busily(0.1), 0.9))
	if r.Missed() != 0 || r.Unjudged() != 1 {
		t.Errorf("%d figures are missed and %d not judged, want 0 and 1", r.Missed(), r.Unjudged())
	}
	var out strings.Builder
	r.Print(&out)
	if text := out.String(); !strings.Contains(text, "not judged: busy") || strings.Contains(text, string(Missed)) {
		t.Errorf("the report is:\n%s", text)
	}
}

// measured returns the result of a contender.
func measured(scenario, contender string, rates ...float64) *measure.Result {
	result := &measure.Result{
		Comparison: &measure.Comparison{Name: scenario}, Contender: contender,
		Usage: measure.Usage{measure.APIServerProgram: 40 * time.Millisecond}, Counted: 10, Requests: measure.RequestCounts{Writes: 20},
	}
	for number, rate := range rates {
		result.Rounds = append(result.Rounds, measure.Round{
			Number: number, PerSecond: rate, Usage: measure.Usage{measure.APIServerProgram: 4 * time.Millisecond},
		})
		result.Total.Latencies = append(result.Total.Latencies, 5*time.Millisecond)
	}
	return result
}

func TestSection(t *testing.T) {
	r := &Report{}
	floor, facade := measured("distinct keys, 16", "bare | resource", 100, 200, 400), measured("distinct keys, 16", "façade", 90, 180, 380)
	facade.Rounds[2].Disturbance = "other processes used 50 % of the processors"
	r.Add(floor)
	r.Add(facade, AtLeast("cycles / bare", measure.Ratio(facade, floor, measure.Rate), 0.9))
	r.Series("memory of the operator", "MiB", []Point{{1, 2}, {2, 3}, {4, 5.5}})
	r.Remark("It went as far as 4 locks.")
	section, plots, err := r.Section("speed", "images", About{
		Date: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), Revision: "abc", Against: "def", Kubernetes: "v1.37.0", Etcd: "3.6.1",
		Processor: "a CPU", Processors: 2, Memory: 8 << 30, Load: "0.10", Took: 11*time.Minute + time.Second, Effort: 0.5,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"One run of 12 minutes with an effort of 0.5 on 2026-11-23: commit abc against def, Kubernetes v1.37.0, etcd 3.6.1, 2 processors (a CPU), 8 GiB of memory, load 0.10 at the start.",
		"1 of 6 turns were disturbed, for example because other processes used 50 % of the processors.",
		"| distinct keys, 16 | façade: cycles / bare | at least 0.9 | 0.90 | 0.90 to 0.90, 2 rounds | pass |",
		`| distinct keys, 16 | bare \| resource | 200 | 5.00 | 5.00 | 2.00 | 0.00 | 13.33 |`,
		"| memory of the operator | 1.00 MiB | 1 MiB | 100001 MiB | 1000001 MiB | -9 % at 4 locks |",
		"It went as far as 4 locks.",
		"![Acquire and release of distinct keys](images/speed-distinct-keys.svg)",
	} {
		if !strings.Contains(section, want) {
			t.Errorf("the section lacks %q:\n%s", want, section)
		}
	}
	for _, name := range []string{"speed-distinct-keys.svg", "speed-api-server.svg", "speed-bounds.svg", "speed-memory-of-the-operator.svg"} {
		if content := string(plots[name]); !strings.Contains(content, "<svg") || !strings.Contains(content, "</svg>") {
			t.Errorf("%s is no SVG: %.80q", name, content)
		}
	}
	if _, ok := plots["speed-hot-key.svg"]; ok {
		t.Error("there is a plot of what was not measured")
	}
}

func TestReplace(t *testing.T) {
	const page = "before\n<!-- bench speed -->\nold\n<!-- /bench speed -->\nbetween\n<!-- bench scale -->\n<!-- /bench scale -->\n"
	got, err := Replace([]byte(page), "speed", "new\n")
	const want = "before\n<!-- bench speed -->\n\nnew\n\n<!-- /bench speed -->\nbetween\n<!-- bench scale -->\n<!-- /bench scale -->\n"
	if err != nil || string(got) != want {
		t.Errorf("the page is %q, want %q: %v", got, want, err)
	}
	again, err := Replace(got, "speed", "new\n")
	if err != nil || string(again) != want {
		t.Errorf("a second time the page is %q: %v", again, err)
	}
	for _, broken := range []string{"", "<!-- bench speed -->\n", "<!-- /bench speed -->\n<!-- bench speed -->\n"} {
		if _, err := Replace([]byte(broken), "speed", "new"); err == nil {
			t.Errorf("%q is no page with markers", broken)
		}
	}
}

func TestFit(t *testing.T) {
	model, ok := Fit("memory", "MiB", []Point{{100, 60}, {200, 70}, {400, 90}, {800, 143}})
	if !ok || math.Abs(model.Base-50) > 1e-6 || math.Abs(model.PerLock-0.1) > 1e-9 {
		t.Fatalf("the line is %v + %v per lock, want 50 + 0.1", model.Base, model.PerLock)
	}
	if got := model.At(1000); math.Abs(got-150) > 1e-6 {
		t.Errorf("with 1000 locks it is %v, want 150", got)
	}
	// The line says 130 where 143 was measured.
	if got := model.Miss(); math.Abs(got+1.0/11) > 1e-6 {
		t.Errorf("it misses the last point by %v, want a part of 1/11 too low", got)
	}
	for _, few := range [][]Point{nil, {{1, 1}, {2, 2}}, {{1, 1}, {1, 2}, {3, 3}}} {
		if _, ok := Fit("memory", "MiB", few); ok {
			t.Errorf("a line was put through %v", few)
		}
	}
}

func TestComputedModelIsNotChecked(t *testing.T) {
	model := Model{What: "API server", Unit: "cores", PerLock: 0.001}
	if got := model.check(); got != "computed" || !math.IsNaN(model.Miss()) {
		t.Errorf("its check is %q", got)
	}
}

func TestLogTicks(t *testing.T) {
	var labels []string
	for _, tick := range logTicks(0.4, 30) {
		labels = append(labels, tick.Label)
	}
	if got := strings.Join(labels, " "); got != "0.5 1 2 5 10 20" {
		t.Errorf("the ticks are %s", got)
	}
}
