package auditlog

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientevents "k8s.io/client-go/tools/events"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
)

// maxNoteBytes is the bound that the API server sets.
const maxNoteBytes = 1024

func record(event audit.Event, actor, message string) audit.Record {
	return audit.Record{
		Event: event, Actor: actor, Message: message, Namespace: "payments", Lock: "billing--report",
		Key: "billing:report", Holder: "alice", OwnerHash: "hash",
	}
}

func TestForcedReleasesAreEvents(t *testing.T) {
	admitted, dryRun := record(audit.ForceReleased, "root", "stuck"), record(audit.ForceReleased, "root", "stuck")
	admitted.Admitted, dryRun.DryRun = true, true
	cases := map[string]struct {
		record audit.Record
		want   string
	}{
		"who and why": {record(audit.ForceReleased, "root", "100% of nodes are down"),
			`Warning ForceReleased lock:billing:report, held by "alice", was released by force by "root": 100% of nodes are down`},
		"neither is known": {record(audit.ForceReleased, "", ""),
			`Warning ForceReleased lock:billing:report, held by "alice", was released by force by an unknown user: no reason was given`},
		"admitted": {admitted,
			`Warning ForceReleased lock:billing:report, held by "alice", is being released by force by "root": stuck`},
		"a dry run":                 {dryRun, ""},
		"what is no forced release": {record(audit.Released, "alice", ""), ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			recorder, next := clientevents.NewFakeRecorder(1), &audittest.Recorder{}
			WithEvents(recorder, next).Record(test.record)
			close(recorder.Events)
			if got := <-recorder.Events; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if len(next.All()) != 1 {
				t.Error("the record was not given to the next sink")
			}
		})
	}
	WithEvents(clientevents.NewFakeRecorder(1), nil).Record(record(audit.Granted, "alice", ""))
}

// eventSinkFunc is told of each request.
type eventSinkFunc func(request string, event *eventsv1.Event)

func (sink eventSinkFunc) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	sink("create", event)
	return event, nil
}

func (sink eventSinkFunc) Update(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	sink("update", event)
	return event, nil
}

func (sink eventSinkFunc) Patch(_ context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	sink("patch", event)
	return event, nil
}

// A delete that admission let pass may be overtaken by one of another version, for another reason.
func TestEachForcedReleaseShowsItsReason(t *testing.T) {
	requests := make(chan string, 2)
	broadcaster := clientevents.NewBroadcaster(eventSinkFunc(func(request string, event *eventsv1.Event) {
		_, reason, _ := strings.Cut(event.Note, "by force by ")
		requests <- request + " " + reason
	}))
	t.Cleanup(broadcaster.Shutdown)
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	sink := WithEvents(broadcaster.NewRecorder(scheme, "lock-operator"), nil)
	about := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "report", UID: "uid"}}
	for version, reason := range []string{"the rack burns", "worker-7 lost its disk"} {
		about.ResourceVersion = strconv.Itoa(version + 1)
		ended := audit.Ended(audit.ForceReleased, audit.ByForce, audit.Admission, "root", about, time.Time{})
		ended.Message = reason
		sink.Record(ended)
		if got, want := <-requests, "create \"root\": "+reason; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNotesAreBounded(t *testing.T) {
	for shift := range 4 {
		full := record(audit.ForceReleased, strings.Repeat("u", shift), strings.Repeat("ä€𝄞", 200)+"\xff")
		note := noteOf(&full)
		if len(note) > maxNoteBytes || len(note) < maxNoteBytes-utf8.UTFMax || !utf8.ValidString(note) {
			t.Errorf("%d bytes, valid: %t", len(note), utf8.ValidString(note))
		}
	}
}
