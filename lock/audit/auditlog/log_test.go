package auditlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
)

func open(t *testing.T, writer io.Writer) (*Log, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	log, err := New(Options{Writer: writer, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close(context.WithoutCancel(t.Context())) })
	return log, registry
}

func granted(token int64) audit.Record {
	return audit.Record{Schema: audit.Schema, Event: audit.Granted, Via: audit.Facade, Namespace: "default", FencingToken: token}
}

func TestLogWritesLinesInOrder(t *testing.T) {
	var written bytes.Buffer
	log, _ := open(t, &written)
	const count = 500
	for token := range count {
		log.Record(granted(int64(token)))
	}
	if err := log.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(written.String()), "\n")
	if len(lines) != count {
		t.Fatalf("%d lines, want %d", len(lines), count)
	}
	for token, line := range lines {
		var record audit.Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(granted(int64(token)), record); diff != "" {
			t.Fatalf("line %d (-want +got):\n%s", token, diff)
		}
	}
}

// What a user writes into a record neither ends its line nor adds one.
func TestARecordIsOneLine(t *testing.T) {
	var written bytes.Buffer
	log, _ := open(t, &written)
	const forged = "a\r\n{\"event\":\"Granted\",\"actor\":\"root\"}\n\u2028"
	record := granted(1)
	record.Key, record.Function, record.Actor, record.Holder, record.Message = forged, forged, forged, forged, forged
	record.Object = &audit.Object{Name: forged}
	log.Record(record)
	if err := log.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	line, isWhole := strings.CutSuffix(written.String(), "\n")
	if !isWhole || strings.ContainsAny(line, "\r\n\u2028") {
		t.Errorf("want one line: %q", written.String())
	}
	var got audit.Record
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(record, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLogNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		defer func() { _ = reader.Close() }()
		log, registry := open(t, writer)
		for range 20_000 {
			log.Record(granted(1))
		}
		synctest.Wait()
		if dropped := dropped(t, registry, audit.BufferFull); dropped < 10_000 {
			t.Errorf("dropped %g", dropped)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := log.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the lines are not read", err)
		}
	})
}

// torn fails, having written a part.
type torn struct {
	mu      sync.Mutex
	isFull  bool
	written bytes.Buffer
}

func (t *torn) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isFull {
		t.isFull = false
		count, _ := t.written.Write(text[:10])
		return count, errors.New("no space left on device")
	}
	return t.written.Write(text)
}

func TestLogContinuesAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &torn{isFull: true}
		log, registry := open(t, disk)
		log.Record(granted(1))
		synctest.Wait()
		if failing := gauge(t, registry, "lock_operator_audit_failing"); failing != 1 {
			t.Errorf("failing is %g after a failed write, want 1", failing)
		}
		log.Record(granted(2))
		if err := log.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := tokensOf(t, disk.written.Bytes()); !slices.Equal(got, []int64{1, 2}) {
			t.Errorf("the fencing tokens of the records are %v, want 1 and 2: the torn line was not completed", got)
		}
		if dropped := dropped(t, registry, audit.NotWritten); dropped != 0 {
			t.Errorf("dropped %g, want none", dropped)
		}
	})
}

// What comes in while the log cannot write is buffered, and what is more is told afterwards.
func TestLogTellsWhatItHasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grants = 20_000
		disk := &broken{isFull: true}
		log, registry := open(t, disk)
		at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
		for token := range grants {
			record := granted(int64(token))
			record.Actor, record.Time = worker, v1alpha1.NewTimestamp(at.Add(time.Duration(token)*time.Second))
			log.Record(record)
			if token == 0 {
				synctest.Wait() // From now on it does not empty the buffer.
			}
		}
		synctest.Wait()
		lost := dropped(t, registry, audit.BufferFull)
		if lost < grants/2 {
			t.Fatalf("dropped %g, want more than half", lost)
		}
		forced := granted(grants)
		forced.Event = audit.ForceReleased
		log.Record(forced)
		disk.repair()
		time.Sleep(retryAndSummary) //nolint:forbidigo // it only moves the clock of the bubble
		synctest.Wait()
		var written int
		var summary []audit.Record
		isForcedThere := false
		for _, record := range disk.records(t) {
			switch record.Event {
			case audit.Omitted:
				summary = append(summary, record)
			case audit.ForceReleased:
				isForcedThere = true
			default:
				written++
			}
		}
		want := []audit.Record{{
			Schema: audit.Schema, Event: audit.Omitted, OmittedEvent: audit.Granted, Cause: audit.BufferFull, Via: audit.Facade, Actor: worker,
			Count: int64(lost), Since: v1alpha1.NewTimestamp(at.Add(time.Duration(written) * time.Second)),
			Time: v1alpha1.NewTimestamp(at.Add((grants - 1) * time.Second)),
		}}
		if diff := cmp.Diff(want, summary); diff != "" {
			t.Errorf("the summary (-want +got):\n%s", diff)
		}
		if written+int(lost) != grants {
			t.Errorf("%d grants are written and %g lost, of %d", written, lost, grants)
		}
		if !isForcedThere {
			t.Error("a full buffer has kept out a forced release")
		}
	})
}

// broken takes nothing until it is repaired.
type broken struct {
	mu      sync.Mutex
	isFull  bool
	written bytes.Buffer
}

func (b *broken) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isFull {
		return 0, errors.New("no space left on device")
	}
	return b.written.Write(text)
}

func (b *broken) repair() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isFull = false
}

func (b *broken) records(t *testing.T) []audit.Record {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	return recordsIn(t, b.written.Bytes())
}

func TestLogGivesUpWhenItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, registry := open(t, &broken{isFull: true})
		log.Record(granted(1))
		if err := log.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if dropped := dropped(t, registry, audit.NotWritten); dropped != 1 {
			t.Errorf("dropped %g, want 1", dropped)
		}
	})
}

// halting takes some bytes of each write, and then fails; what it takes of a write is given.
type halting struct {
	takes   []int
	written bytes.Buffer
}

func (h *halting) Write(text []byte) (int, error) {
	if len(h.takes) == 0 {
		return h.written.Write(text)
	}
	takes := min(h.takes[0], len(text))
	h.takes = h.takes[1:]
	count, _ := h.written.Write(text[:takes])
	return count, errors.New("no space left on device")
}

// A line that is given up in its middle spoils no other one, and those before it count as written.
func TestATornLineSpoilsNoOther(t *testing.T) {
	newLog := func(t *testing.T, disk *halting) (*Log, *prometheus.Registry) {
		t.Helper()
		registry := prometheus.NewRegistry()
		metrics, err := newMetrics(registry, nil, func() int { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		log := &Log{writer: disk, metrics: metrics, clock: clock.RealClock{}, closing: make(chan struct{})}
		close(log.closing)
		return log, registry
	}
	line := func(token int64) int {
		text, err := json.Marshal(granted(token))
		if err != nil {
			t.Fatal(err)
		}
		return len(text) + 1
	}
	cases := map[string]struct {
		takes []int
		want  []int64
		lost  float64
	}{
		"in the first line":          {[]int{10}, []int64{4, 5, 6}, 3},
		"in the second line":         {[]int{line(1) + 10}, []int64{1, 4, 5, 6}, 2},
		"between lines":              {[]int{line(1) + line(2)}, []int64{1, 2, 4, 5, 6}, 1},
		"twice":                      {[]int{line(1) + 10, 1 + line(4) + 10}, []int64{1, 4}, 4},
		"and then nothing is taken":  {[]int{10, 0}, []int64{}, 6},
		"and then only its end":      {[]int{10, 1}, []int64{}, 6},
		"nothing, and then one line": {[]int{0, line(4)}, []int64{4}, 5},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			disk := &halting{takes: test.takes}
			log, registry := newLog(t, disk)
			encoder := json.NewEncoder(&log.batch)
			for token := range int64(6) {
				record := granted(token + 1)
				log.encode(encoder, &record)
				if token%3 == 2 {
					log.flush()
				}
			}
			log.flush()
			whole := []int64{}
			for text := range bytes.Lines(disk.written.Bytes()) {
				var record audit.Record
				if json.Unmarshal(text, &record) == nil {
					whole = append(whole, record.FencingToken)
				}
			}
			if !slices.Equal(whole, test.want) {
				t.Errorf("the whole lines are of %v, want %v, in\n%s", whole, test.want, disk.written.String())
			}
			if lost := dropped(t, registry, audit.NotWritten); lost != test.lost {
				t.Errorf("%g lines count as not written, want %g", lost, test.lost)
			}
			if text := disk.written.String(); len(text) > 0 && !strings.HasSuffix(text, "\n") {
				t.Error("the last line has no end")
			}
		})
	}
}

// Nothing that is kept of a record has the size of a request.
func TestLogBoundsRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		log, _ := open(t, &written)
		long := refused(strings.Repeat("u", 1<<20), strings.Repeat("n", 1<<20))
		for range refusalBurst + 1 {
			log.Record(long)
		}
		if err := log.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		counts := map[audit.Event]int{}
		for _, record := range recordsIn(t, written.Bytes()) {
			counts[record.Event]++
			if len(record.Actor) > audit.MaxNameBytes || len(record.Namespace) > audit.MaxNameBytes {
				t.Fatalf("an actor of %d bytes, and a namespace of %d", len(record.Actor), len(record.Namespace))
			}
		}
		if diff := cmp.Diff(map[audit.Event]int{audit.Refused: refusalBurst, audit.Omitted: 1}, counts); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
	})
}

const (
	worker = "system:serviceaccount:payments:worker"
	// retryAndSummary is when a log has written again, and has summarised.
	retryAndSummary = 30 * time.Second
)

// recordsIn returns the records of whole lines.
func recordsIn(t *testing.T, text []byte) (records []audit.Record) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var record audit.Record
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		records = append(records, record)
	}
	return records
}

func tokensOf(t *testing.T, text []byte) (tokens []int64) {
	t.Helper()
	for _, record := range recordsIn(t, text) {
		tokens = append(tokens, record.FencingToken)
	}
	return tokens
}

func TestLogCountsDroppedRecords(t *testing.T) {
	log, registry := open(t, nil)
	log.Record(granted(1))
	log.Record(audit.Record{Event: audit.Released, Reason: audit.ByOwner, Via: audit.Facade, HeldSeconds: new(2.0)})
	log.Record(audit.Record{Event: audit.ForceReleased, Reason: audit.ByForce, Via: audit.Admission, DryRun: true}) // No fact.
	want := exposition.Of(&metric.LockEvents, `lock_operator_lock_events_total{event="Granted",reason="",via="facade"} 1
lock_operator_lock_events_total{event="Released",reason="ByOwner",via="facade"} 1
`)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "lock_operator_lock_events_total"); err != nil {
		t.Error(err)
	}
	if count := testutil.CollectAndCount(registry, "lock_operator_lock_held_seconds"); count != 1 {
		t.Errorf("%d series of held times, want 1", count)
	}
	if err := log.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.Record(granted(2)) // After the end, it is only counted.
}

// dropped returns how many records of any actors were dropped for the cause.
func dropped(t *testing.T, registry *prometheus.Registry, cause audit.Cause) (count float64) {
	t.Helper()
	for _, metric := range metricsOf(t, registry, "lock_operator_audit_records_dropped_total") {
		if metric.GetLabel()[0].GetValue() == string(cause) {
			count += metric.GetCounter().GetValue()
		}
	}
	return count
}

func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	return metricsOf(t, registry, name)[0].GetGauge().GetValue()
}

func metricsOf(t *testing.T, registry *prometheus.Registry, name string) []*dto.Metric {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()
		}
	}
	t.Fatalf("no metric %q", name)
	return nil
}

func BenchmarkRecord(b *testing.B) {
	log, err := New(Options{Writer: io.Discard, Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = log.Close(context.WithoutCancel(b.Context())) }()
	record := granted(1)
	record.Key, record.Holder, record.OwnerHash = "billing:report", "system:serviceaccount:payments:worker", "0123456789abcdef01234567"
	b.ReportAllocs()
	for b.Loop() {
		log.Record(record)
	}
}

func TestWhatAlertsCountIsThereBeforeItHappens(t *testing.T) {
	registry := prometheus.NewRegistry()
	log, err := New(Options{Registerer: registry, Vias: []audit.Via{audit.Controller, audit.Admission}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close(context.WithoutCancel(t.Context())) }()
	for _, via := range []string{"controller", "admission"} {
		for event, reason := range map[audit.Event]audit.Reason{
			audit.Granted: "", audit.Renewed: "", audit.Released: audit.HolderGone, audit.Expired: audit.Reaped, audit.ForceReleased: audit.ByForce,
		} {
			labels := map[string]string{"event": string(event), "reason": string(reason), "via": via}
			if got, exists := exposition.Value(registry, &metric.LockEvents, labels); !exists || got != 0 {
				t.Errorf("%v: %v", labels, got)
			}
		}
		if got, exists := exposition.Value(registry, &metric.LateRenewals, map[string]string{"via": via}); !exists || got != 0 {
			t.Errorf("late renewals of %s: %v", via, got)
		}
	}
	if got, exists := exposition.Value(registry, &metric.LateRenewals, map[string]string{"via": "facade"}); exists {
		t.Errorf("%v late renewals by a component that does not run", got)
	}
}

func TestLateRenewalsAreCounted(t *testing.T) {
	log, registry := open(t, nil)
	log.Record(audit.Record{Event: audit.Renewed, Via: audit.Admission})
	log.Record(audit.Record{Event: audit.Renewed, Via: audit.Admission, IsLate: true})
	if got, _ := exposition.Value(registry, &metric.LateRenewals, map[string]string{"via": "admission"}); got != 1 {
		t.Errorf("%v late renewals, want 1", got)
	}
	if got := exposition.Sum(registry, &metric.LockEvents, map[string]string{"event": "Renewed"}); got != 2 {
		t.Errorf("%v renewals, want 2", got)
	}
	if got, exists := exposition.Value(registry, &metric.LimitUsage, map[string]string{"limit": "audit_buffer"}); !exists || got != 0 {
		t.Errorf("%v of the buffer is used", got)
	}
}
