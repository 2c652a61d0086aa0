package main

import (
	"errors"
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/test/support/kubelet"
)

func TestAVerdictIsByTheMedianOfAQuietMachine(t *testing.T) {
	for name, test := range map[string]struct {
		figure figure
		want   verdict
	}{
		"as much as the least bound":          {atLeast("x", single(0.9, ""), 0.9), passed},
		"less than the least bound":           {atLeast("x", single(0.899, ""), 0.9), missed},
		"as much as the greatest bound":       {atMost("x", single(64, ""), 64, " KiB"), passed},
		"more than the greatest bound":        {atMost("x", single(64.1, ""), 64, " KiB"), missed},
		"nothing was measured":                {noted("x", single(math.NaN(), ""), ""), missed},
		"without bounds":                      {noted("x", single(12, ""), ""), unbounded},
		"with bounds that do not hold":        {atMost("x", single(65, ""), 64, "").when(false), unbounded},
		"a bad number of a busy machine":      {atLeast("x", single(0.1, "a compiler"), 0.9), unjudged},
		"a busy machine and nothing measured": {atLeast("x", single(math.NaN(), "a compiler"), 0.9), missed},
	} {
		if got := test.figure.verdict(); got != test.want {
			t.Errorf("%s: the verdict is %q, want %q", name, got, test.want)
		}
	}
}

func TestAReportHasFiguresAndRowsAndCountsWhatFailed(t *testing.T) {
	r := &report{}
	floor, measured := resultOf(100, 200, 400), resultOf(90, 180, 360)
	r.add(floor, measured)
	r.judge(measured, atLeast("cycles / bare", ratio(rate, measured, floor), 0.95), atMost("memory", single(3, "a compiler"), 4, " KiB"))
	r.fail("hot key", errors.New("it broke"))
	if err := r.verdict(); err == nil || !strings.HasPrefix(err.Error(), "2 figures miss") || !strings.HasSuffix(err.Error(), "judge 1") {
		t.Errorf("the verdict is %v, want two that are missed and one that is not judged", err)
	}
	text := strings.Join(strings.Fields(r.markdown()), " ")
	for _, want := range []string{
		"| distinct keys, 16 | façade: cycles / bare | at least 0.95 | 0.90 | 0.90 to 0.90, 3 rounds | MISSED |",
		"| distinct keys, 16 | façade | 180 | 5.00 | 5.00 | 2.00 | 0.00 | 0.00 | 3.00 | 0.00 | 0.00 |",
		"hot key: not measured: it broke",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, r.markdown())
		}
	}
}

func TestAReportWithoutAMissedFigureIsNoError(t *testing.T) {
	r := &report{}
	r.note("expiry", "reaper", atLeast("deletes/s / bare", single(1, ""), 0.9), noted("deletes/s", single(300, "a compiler"), ""))
	if err := r.verdict(); err != nil {
		t.Error(err)
	}
}

func TestAPageKeepsWhatIsNotOfTheSuite(t *testing.T) {
	page := "before\n<!-- bench speed -->\nold\n<!-- /bench speed -->\nbetween\n<!-- bench scale -->\n<!-- /bench scale -->\n"
	const want = "before\n<!-- bench speed -->\n\nnew\n\n<!-- /bench speed -->\nbetween\n<!-- bench scale -->\n<!-- /bench scale -->\n"
	for range 2 {
		var err error
		if page, err = replace(page, "speed", "new\n"); err != nil || page != want {
			t.Fatalf("the page is %q, want %q: %v", page, want, err)
		}
	}
	if _, err := replace("<!-- bench speed -->\n", "speed", "new"); err == nil {
		t.Error("a page without the end of the section is replaced")
	}
}

func TestAScenarioEndsWithItsFirstErrorAndIsCleanedUp(t *testing.T) {
	broken, cleaned := errors.New("it broke"), ""
	err := (&bench{}).try(func(b *bench) {
		b.cleanup(func() { cleaned += "1" })
		b.cleanup(func() { cleaned += "2" })
		must(0, broken)
		t.Error("it goes on")
	})
	if !errors.Is(err, broken) || cleaned != "21" {
		t.Errorf("it ends with %v, cleaned up in the order %q", err, cleaned)
	}
}

func TestJobsThatStartOutOfTurnAreNoMeasurement(t *testing.T) {
	var created []types.UID
	var starts []kubelet.Started
	for i := range 2 * lockedKeys {
		uid := types.UID(rune('A' + i))
		created = append(created, uid)
		starts = append(starts, kubelet.Started{UID: uid, Key: string(created[i%lockedKeys])})
	}
	if seconds, err := betweenStarts(starts, created, nil); err != nil || len(seconds) != lockedKeys {
		t.Errorf("%d times between starts, want %d: %v", len(seconds), lockedKeys, err)
	}
	if _, err := betweenStarts(starts, created, []string{"two at a time"}); err == nil {
		t.Error("two Jobs of a key at a time were measured")
	}
	starts[0], starts[lockedKeys] = starts[lockedKeys], starts[0]
	if _, err := betweenStarts(starts, created, nil); err == nil {
		t.Error("Jobs out of turn were measured")
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-quick", "-only=^builds$"})
	if err != nil || o.effort != 0.1 || o.liveLocks != 10_000 || !o.only.MatchString("builds") || o.page != "" {
		t.Errorf("the options are %+v: %v", o, err)
	}
	for _, wrong := range []string{"-suite=size", "-effort=0", "-live-locks=0", "-only=("} {
		if _, err := parseOptions([]string{wrong}); err == nil {
			t.Errorf("%s was accepted", wrong)
		}
	}
}
