package auditlog

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/lock/audit"
)

func refused(actor, namespace string) audit.Record {
	return audit.Record{Schema: audit.Schema, Event: audit.Refused, Reason: audit.Invalid, Via: audit.Admission, Actor: actor, Namespace: namespace}
}

func TestLogBoundsRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		log, registry := open(t, &written)
		for range 1000 {
			log.Record(refused("mallory", "payments"))
		}
		log.Record(granted(1))
		if err := log.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[audit.Event]int{}
		for _, record := range recordsIn(t, written.Bytes()) {
			got[record.Event]++
			if record.Event == audit.Omitted {
				want := audit.Record{
					Schema: audit.Schema, Event: audit.Omitted, OmittedEvent: audit.Refused, Reason: audit.Invalid, Via: audit.Admission,
					Actor: "mallory", Cause: audit.TooManyRefusals, Count: 950,
				}
				if diff := cmp.Diff(want, record); diff != "" {
					t.Errorf("the summary (-want +got):\n%s", diff)
				}
			}
		}
		if diff := cmp.Diff(map[audit.Event]int{audit.Refused: 50, audit.Granted: 1, audit.Omitted: 1}, got); diff != "" {
			t.Errorf("records, want a burst of 50, the grant and a summary (-want +got):\n%s", diff)
		}
		if dropped := dropped(t, registry, audit.TooManyRefusals); dropped != 950 {
			t.Errorf("dropped %g, want 950", dropped)
		}
	})
}

// A user without a right to locks must not keep the refusals of lock requests out of the audit by
// writes of guarded objects, nor the other way round.
func TestLogBoundsRefusedWritesByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		log, registry := open(t, &written)
		for number := range 1000 {
			log.Record(audit.Record{Event: audit.WriteRefused, Reason: audit.Guarded, Via: audit.Admission, Actor: "mallory", Namespace: fmt.Sprint(number)})
		}
		for range 500 {
			log.Record(audit.Record{Event: audit.Refused, Reason: audit.Invalid, Via: audit.Admission, Actor: "mallory"})
			log.Record(audit.Record{Event: audit.WriteAdmitted, Via: audit.Admission, Actor: "mallory"})
		}
		if err := log.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for event, want := range map[audit.Event]int{audit.WriteRefused: refusalBurst, audit.Refused: refusalBurst, audit.WriteAdmitted: 500} {
			if lines := strings.Count(written.String(), fmt.Sprintf(`"event":%q`, event)); lines != want {
				t.Errorf("%d lines of %s, want %d", lines, event, want)
			}
		}
		if dropped := dropped(t, registry, audit.TooManyRefusals); dropped != 1500-2*refusalBurst {
			t.Errorf("dropped %g, want the rest of 1500 refusals", dropped)
		}
	})
}

// A burst of what very many actors can cause at will, while nothing can be written, leaves room for what the
// operator itself has done to locks.
func TestRefusalsAndAdmittedChangesLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &broken{isFull: true}
		log, _ := open(t, disk)
		for number := range 2 * buffered {
			log.Record(refused(fmt.Sprint("user-", number%1000), "payments"))
			if number == 0 {
				synctest.Wait() // From now on the log does not empty the buffer.
			}
		}
		if waiting := len(log.records); waiting != buffered/2 {
			t.Fatalf("%d refusals wait, want half of the buffer", waiting)
		}
		for range buffered {
			admitted := granted(1)
			admitted.Actor, admitted.Admitted = "mallory", true
			log.Record(admitted)
		}
		if waiting := len(log.records); waiting != buffered*3/4 {
			t.Fatalf("%d refusals and admitted changes wait, want three quarters of the buffer", waiting)
		}
		for token := range 100 {
			log.Record(granted(int64(token)))
			forced := granted(int64(token))
			forced.Event = audit.ForceReleased
			log.Record(forced)
		}
		disk.repair()
		if err := log.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[audit.Event]int{}
		for _, record := range disk.records(t) {
			if !record.Admitted {
				got[record.Event]++
			}
		}
		if got[audit.Granted] != 100 || got[audit.ForceReleased] != 100 {
			t.Errorf("%d grants and %d forced releases are on record, want 100 of each", got[audit.Granted], got[audit.ForceReleased])
		}
	})
}
