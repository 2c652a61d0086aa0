package robustness_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// explain writes porcupine's picture as text, with marks at the operations that fit
// nowhere.
func (r *record) explain(key string, steps []porcupine.Operation, info porcupine.LinearizationInfo, artifacts string) error {
	ordered := map[int]bool{}
	for _, partition := range info.PartialLinearizations() {
		longest := slices.MaxFunc(partition, func(a, b []int) int { return cmp.Compare(len(a), len(b)) })
		for _, position := range longest {
			ordered[position] = true
		}
	}
	return r.write(key, steps, func(position int) bool { return ordered[position] }, artifacts)
}

// write writes the operations on the key in the order of their calls, with marks at those
// that fit nowhere, and the grants in etcd.
func (r *record) write(key string, steps []porcupine.Operation, fits func(int) bool, artifacts string) error {
	type line struct {
		at   int64
		text string
	}
	var lines []line
	for position, operation := range steps {
		mark := "?  "
		if fits(position) {
			mark = "   "
		}
		taken := operation.Input.(step)
		lines = append(lines, line{operation.Call, fmt.Sprintf("%s[%s, %s] %s", mark,
			time.Duration(operation.Call), time.Duration(operation.Return), taken.label)})
	}
	for _, grant := range r.grants {
		if grant.key != "lock:"+key {
			continue
		}
		lines = append(lines, line{int64(grant.from), fmt.Sprintf("   etcd: token %d owner %s seen %s to %s, %d renewals, stamped %s, expires %s at first and %s at last",
			grant.token, short(grant.owner), grant.from, grant.to, len(grant.renewals), r.clock(grant.made.Spec.AcquireTime.Time),
			r.clock(grant.made.Spec.ExpireTime.Time), r.clock(grant.last.Spec.ExpireTime.Time))})
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var text strings.Builder
	text.WriteString("Operations marked with ? have no place in the longest order that is that of a lock.\n\n")
	for _, line := range lines {
		text.WriteString(line.text + "\n")
	}
	return os.WriteFile(filepath.Join(artifacts, "history-"+key+".txt"), []byte(text.String()), 0o600)
}

// clock turns a stamp into time since the start of the run.
func (r *record) clock(stamp time.Time) time.Duration { return stamp.Sub(r.start.Round(0)) }
