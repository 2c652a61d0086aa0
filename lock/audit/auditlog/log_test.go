package auditlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/auditlog"
)

func open(t *testing.T, writer io.Writer) (*auditlog.Log, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	log, err := auditlog.New(auditlog.Options{Writer: writer, Registerer: registry})
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

func TestLogNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		defer func() { _ = reader.Close() }()
		log, registry := open(t, writer)
		for range 20_000 {
			log.Record(granted(1))
		}
		synctest.Wait()
		if dropped := dropped(t, registry, "buffer_full"); dropped < 10_000 {
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
		log.Record(granted(2))
		if err := log.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(disk.written.String()), "\n")
		if len(lines) != 2 || !json.Valid([]byte(lines[1])) {
			t.Errorf("the line after the torn one is torn, too: %q", lines)
		}
		if dropped := dropped(t, registry, "not_written"); dropped != 1 {
			t.Errorf("dropped %g, want 1", dropped)
		}
	})
}

func TestLogBoundsRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		log, registry := open(t, &written)
		for range 1000 {
			log.Record(audit.Record{Event: audit.Refused, Reason: audit.Invalid, Via: audit.Admission})
		}
		log.Record(granted(1))
		if err := log.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(written.String(), "\n"); lines != 201 {
			t.Errorf("%d lines, want a burst of 200 and the grant", lines)
		}
		if dropped := dropped(t, registry, "too_many_refusals"); dropped != 800 {
			t.Errorf("dropped %g, want 800", dropped)
		}
	})
}

// A user without a right to locks must not keep the refusals of lock requests out of the audit by
// writes of guarded objects, nor the other way round.
func TestLogBoundsRefusedWritesByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		log, registry := open(t, &written)
		for range 1000 {
			log.Record(audit.Record{Event: audit.WriteRefused, Reason: audit.Guarded, Via: audit.Admission})
		}
		for range 500 {
			log.Record(audit.Record{Event: audit.Refused, Reason: audit.Invalid, Via: audit.Admission})
			log.Record(audit.Record{Event: audit.WriteAdmitted, Via: audit.Admission})
		}
		if err := log.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for event, want := range map[audit.Event]int{audit.WriteRefused: 200, audit.Refused: 200, audit.WriteAdmitted: 500} {
			if lines := strings.Count(written.String(), fmt.Sprintf(`"event":%q`, event)); lines != want {
				t.Errorf("%d lines of %s, want %d", lines, event, want)
			}
		}
		if dropped := dropped(t, registry, "too_many_refusals"); dropped != 1100 {
			t.Errorf("dropped %g, want 800 refused writes and 300 other refusals", dropped)
		}
	})
}

func TestLogCountsDroppedRecords(t *testing.T) {
	log, registry := open(t, nil)
	log.Record(granted(1))
	log.Record(audit.Record{Event: audit.Released, Reason: audit.ByOwner, Via: audit.Facade, HeldSeconds: new(2.0)})
	want := `
# HELP lock_operator_lock_events_total Facts about locks, as in the audit, by event, by the reason of an end or a refusal, and by the path through which they happened.
# TYPE lock_operator_lock_events_total counter
lock_operator_lock_events_total{event="Granted",reason="",via="facade"} 1
lock_operator_lock_events_total{event="Released",reason="ByOwner",via="facade"} 1
`
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

func dropped(t *testing.T, registry *prometheus.Registry, cause string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "lock_operator_audit_records_dropped_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == cause {
				return metric.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric of cause %q", cause)
	return 0
}

func BenchmarkRecord(b *testing.B) {
	log, err := auditlog.New(auditlog.Options{Writer: io.Discard, Registerer: prometheus.NewRegistry()})
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
