package robustness_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// report is the report of a soak: its parts, and their sum.
type report struct {
	Total Tally  `json:"total"`
	Parts []part `json:"parts"`
}

// part is one part of a run, with a history of its own.
type part struct {
	Seed uint64 `json:"seed"`
	// Revision is that of the code, as the environment variable REVISION names it.
	Revision string `json:"revision,omitempty"`
	Tally
}

// Tally is what is counted of one part or of several.
type Tally struct {
	Operations int            `json:"operations"`
	Seconds    float64        `json:"seconds"`
	Calls      map[string]int `json:"calls"`
	Grants     int            `json:"grants"`
	// LastToken is the largest fencing token.
	LastToken int64                 `json:"lastToken"`
	Faults    map[string]faultTally `json:"faults"`
	// Waits are the times in which a lock was free and wanted, and requests got through.
	Waits map[class]waitTally `json:"freeWhileWanted"`
	// OpenSeconds are the times in which requests of a replica got through, of
	// ReplicaSeconds.
	OpenSeconds    float64 `json:"openSeconds"`
	ReplicaSeconds float64 `json:"replicaSeconds"`
	// Most and Rest are the largest figures of one replica, at any time and at rest.
	Most figures `json:"most"`
	Rest figures `json:"atRest"`

	Violations []string `json:"violations"`
}

type faultTally struct {
	Count   int     `json:"count"`
	Seconds float64 `json:"seconds"`
}

type waitTally struct {
	Count int `json:"count"`
	// Over counts those that were longer than so many milliseconds.
	Over map[int]int `json:"over"`
	// LongestMillis and Longest tell of the longest one.
	LongestMillis float64 `json:"longestMillis"`
	Longest       string  `json:"longest"`
}

// overs are the limits of waitTally.
var overs = []int{10, 20, 50, 100, 200, 500, 1000, 2000}

// figures are what a leak makes grow.
type figures struct {
	Goroutines int64 `json:"goroutines"`
	HeapBytes  int64 `json:"heapBytes"`
	// Files are open files, nearly all of them connections.
	Files int64 `json:"files"`
}

func (f figures) most(other figures) figures {
	return figures{max(f.Goroutines, other.Goroutines), max(f.HeapBytes, other.HeapBytes), max(f.Files, other.Files)}
}

func newPart(seed uint64, record *record, replicas []*replica, violations []string) part {
	tally := Tally{
		Operations: len(record.operations), Seconds: record.end.Seconds(), Grants: len(record.grants),
		Calls: map[string]int{}, Faults: map[string]faultTally{}, Waits: map[class]waitTally{}, Violations: violations,
	}
	for index := range record.operations {
		op := &record.operations[index]
		tally.Calls[string(op.kind)+": "+string(op.outcome)]++
	}
	for index := range record.beliefs {
		taken := &record.beliefs[index]
		door, _, _ := strings.Cut(taken.program, " program")
		tally.Calls["programs, "+door+": "+taken.outcome()]++
	}
	for index := range record.tenures {
		tally.Calls["for Pods: "+record.tenures[index].outcome()]++
	}
	tally.Calls["Jobs: started and completed"] += len(record.jobs)
	for _, grant := range record.grants {
		tally.LastToken = max(tally.LastToken, grant.token)
	}
	for _, fault := range record.faults {
		tally.Faults[fault.name] = tally.Faults[fault.name].plus(faultTally{1, fault.length().Seconds()})
	}
	for _, wait := range record.waits() {
		tally.Waits[wait.class] = tally.Waits[wait.class].plus(tallyOf(wait))
	}
	for number, passage := range record.passages {
		tally.OpenSeconds += total(passage.open).Seconds()
		tally.ReplicaSeconds += record.end.Seconds()
		most, rest := replicas[number].path.figures()
		tally.Most, tally.Rest = tally.Most.most(most), tally.Rest.most(rest)
	}
	return part{Seed: seed, Revision: os.Getenv("REVISION"), Tally: tally}
}

func tallyOf(wait wanted) waitTally {
	millis := float64(wait.length()) / float64(time.Millisecond)
	tally := waitTally{Count: 1, Over: map[int]int{}, LongestMillis: millis,
		Longest: fmt.Sprintf("%s on replica %d from %s to %s, %s", wait.key, wait.replica, wait.from, wait.to, wait.since)}
	for _, limit := range overs {
		if millis > float64(limit) {
			tally.Over[limit] = 1
		}
	}
	return tally
}

func (f faultTally) plus(other faultTally) faultTally {
	return faultTally{f.Count + other.Count, f.Seconds + other.Seconds}
}

func (w waitTally) plus(other waitTally) waitTally {
	longest := w
	if other.LongestMillis > w.LongestMillis {
		longest = other
	}
	longest.Count, longest.Over = w.Count+other.Count, sum(w.Over, other.Over)
	return longest
}

func sum[K comparable](a, b map[K]int) map[K]int {
	both := maps.Clone(a)
	if both == nil {
		both = map[K]int{}
	}
	for key, count := range b {
		both[key] += count
	}
	return both
}

// plus returns the sum of two parts.
func (t Tally) plus(other Tally) Tally {
	both := Tally{
		Operations: t.Operations + other.Operations, Seconds: t.Seconds + other.Seconds,
		Calls: sum(t.Calls, other.Calls), Grants: t.Grants + other.Grants, LastToken: max(t.LastToken, other.LastToken),
		Faults: map[string]faultTally{}, Waits: map[class]waitTally{},
		OpenSeconds: t.OpenSeconds + other.OpenSeconds, ReplicaSeconds: t.ReplicaSeconds + other.ReplicaSeconds,
		Most: t.Most.most(other.Most), Rest: t.Rest.most(other.Rest),
		Violations: slices.Concat(t.Violations, other.Violations),
	}
	for _, each := range []Tally{t, other} {
		for name, fault := range each.Faults {
			both.Faults[name] = both.Faults[name].plus(fault)
		}
		for class, waits := range each.Waits {
			both.Waits[class] = both.Waits[class].plus(waits)
		}
	}
	return both
}

// markdown returns tables for people.
func (t Tally) markdown() string {
	var text strings.Builder
	line := func(format string, values ...any) { fmt.Fprintf(&text, format+"\n", values...) }
	line("| what | how many |\n| --- | --- |")
	line("| operations | %d in %s, %.0f per second |", t.Operations, (time.Duration(t.Seconds) * time.Second), float64(t.Operations)/max(t.Seconds, 1))
	line("| grants | %d, last token %d |", t.Grants, t.LastToken)
	line("| requests got through | %.0f of %.0f seconds of a replica |", t.OpenSeconds, t.ReplicaSeconds)
	line("| a replica at most, at any time | %d goroutines, %.0f MiB heap, %d files |", t.Most.Goroutines, float64(t.Most.HeapBytes)/(1<<20), t.Most.Files)
	line("| a replica at most, at rest | %d goroutines, %.0f MiB heap, %d files |", t.Rest.Goroutines, float64(t.Rest.HeapBytes)/(1<<20), t.Rest.Files)
	line("| violations | %d |", len(t.Violations))
	line("\n| a lock free while wanted | times | over 50 ms | over 500 ms | over 2 s | longest |\n| --- | --- | --- | --- | --- | --- |")
	for _, class := range classes {
		waits := t.Waits[class]
		line("| %s | %d | %d | %d | %d | %.0f ms: %s |", class, waits.Count, waits.Over[50], waits.Over[500], waits.Over[2000], waits.LongestMillis, cmp.Or(waits.Longest, "none"))
	}
	line("\n| fault | times | seconds |\n| --- | --- | --- |")
	for _, name := range sortedKeys(t.Faults) {
		line("| %s | %d | %.0f |", name, t.Faults[name].Count, t.Faults[name].Seconds)
	}
	line("\n| call: outcome | times |\n| --- | --- |")
	for _, name := range sortedKeys(t.Calls) {
		line("| %s | %d |", name, t.Calls[name])
	}
	return text.String()
}

// readReport returns the report in the folder, or an empty one.
func readReport(dir string) (report, error) {
	var found report
	content, err := os.ReadFile(filepath.Join(dir, "soak.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &found)
	}
	return found, err
}

// add adds a part, and writes soak.json and soak.md.
func (r *report) add(dir string, next part) error {
	r.Parts = append(r.Parts, next)
	r.Total = r.Total.plus(next.Tally)
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	seeds := make([]string, 0, len(r.Parts))
	for _, part := range r.Parts {
		seeds = append(seeds, fmt.Sprint(part.Seed))
	}
	text := r.Total.markdown() + "\nSeeds of the parts: " + strings.Join(seeds, ", ") + "\n"
	for _, violation := range r.Total.Violations {
		text += "\n- " + violation + "\n"
	}
	return errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "soak.json"), content, 0o600),
		os.WriteFile(filepath.Join(dir, "soak.md"), []byte(text), 0o600))
}
