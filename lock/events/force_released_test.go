package events

import (
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientevents "k8s.io/client-go/tools/events"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func release(user, reason string) lock.ForcedRelease {
	return lock.ForcedRelease{User: user, Reason: reason, Lock: &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "billing--report"},
		Spec:       v1alpha1.LockSpec{Key: "billing:report", Owner: "secret", Holder: "alice"},
	}}
}

func TestForceReleased(t *testing.T) {
	cases := map[string]struct {
		released lock.ForcedRelease
		want     string
	}{
		"who and why": {release("root", "100% of nodes are down"),
			`Warning ForceReleased lock:billing:report, held by "alice", was released by force by "root": 100% of nodes are down`},
		"neither is known": {release("", ""),
			`Warning ForceReleased lock:billing:report, held by "alice", was released by force by an unknown user: no reason was given`},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			recorder := clientevents.NewFakeRecorder(1)
			ForceReleased(recorder)(test.released)
			if got := <-recorder.Events; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestNotesAreBounded(t *testing.T) {
	for shift := range 4 {
		note := noteOf(release(strings.Repeat("u", shift), strings.Repeat("ä€𝄞", 200)+"\xff"))
		if len(note) > maxNoteBytes || len(note) < maxNoteBytes-utf8.UTFMax || !utf8.ValidString(note) {
			t.Errorf("%d bytes, valid: %t", len(note), utf8.ValidString(note))
		}
	}
}
