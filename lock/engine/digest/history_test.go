package digest

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func object(name string, version int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: strconv.Itoa(version),
	}}
}

func change(kind watch.EventType, name string, version int) Change {
	return ChangeOf(watch.Event{Type: kind, Object: object(name, version)})
}

func bookmark(version int, endsList bool) Change {
	at := object("", version)
	if endsList {
		at.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return ChangeOf(watch.Event{Type: watch.Bookmark, Object: at})
}

// listed returns the history after a list.
func listed(version int, objects ...*metav1.PartialObjectMetadata) *History {
	var h History
	h.Begin()
	for _, object := range objects {
		h.Add(object)
	}
	h.Complete(strconv.Itoa(version), start)
	return &h
}

func (h *History) apply(changes ...Change) *History {
	for _, change := range changes {
		h.Apply(change, start)
	}
	return h
}

func mustBe(t *testing.T, want Verdict, own *History, published Digest, version int) {
	t.Helper()
	if got := own.Compare(published, strconv.Itoa(version), start); got != want {
		t.Errorf("verdict %d, want %d", got, want)
	}
}

func TestHistoriesAgreeHoweverTheyCameAbout(t *testing.T) {
	a, b := object("a", 10), object("b", 11)
	want := listed(20, a, b).apply(change(watch.Modified, "a", 21), change(watch.Added, "c", 22), change(watch.Deleted, "b", 23))
	histories := map[string]*History{
		"a list in another order": listed(20, b, a).apply(change(watch.Modified, "a", 21), change(watch.Added, "c", 22), change(watch.Deleted, "b", 23)),
		"a list at the end":       listed(23, object("c", 22), object("a", 21)),
		"one event twice":         listed(20, a, b).apply(change(watch.Modified, "a", 21), change(watch.Modified, "a", 21), change(watch.Added, "c", 22), change(watch.Deleted, "b", 23)),
	}
	var streamed History
	streamed.Begin()
	streamed.apply(change(watch.Added, "b", 11), change(watch.Added, "a", 10), change(watch.Modified, "a", 21), bookmark(21, true),
		change(watch.Added, "c", 22), change(watch.Deleted, "b", 23))
	histories["an initial list of a watch, with an event in it"] = &streamed
	resumed := listed(20, a, b).apply(change(watch.Modified, "a", 21), bookmark(21, false))
	resumed.Resume("21")
	histories["a watch that was opened anew"] = resumed.apply(change(watch.Added, "c", 22), change(watch.Deleted, "b", 23))
	for title, history := range histories {
		t.Run(title, func(t *testing.T) {
			if history.Latest() != want.Latest() || want.Latest() == (Digest{}) {
				t.Errorf("%s, want %s", history.Latest(), want.Latest())
			}
			mustBe(t, Agrees, history, want.Latest(), 30)
		})
	}
}

func TestCompare(t *testing.T) {
	first := []Change{change(watch.Added, "a", 11), change(watch.Added, "b", 12)}
	deleted, later := change(watch.Deleted, "a", 13), change(watch.Modified, "b", 14)
	cases := map[string]struct {
		publisher, own []Change
		want           Verdict
	}{
		"nothing is lost":                                {append(first, deleted), append(first, deleted), Agrees},
		"this replica has been shown more":               {first, append(first, deleted, later), Agrees},
		"the last change is lost":                        {append(first, deleted), first, Differs},
		"a former change is lost":                        {append(first, deleted, later), append(first, later), Differs},
		"the publisher has lost it":                      {append(first, later), append(first, deleted, later), Differs},
		"the publisher may yet be shown the last change": {first, append(first, deleted), Agrees},
		"an update is lost":                              {append(first, later), first, Differs},
		"the store has made up for it": {
			append(first, deleted, change(watch.Added, "a", 15)), append(first, change(watch.Added, "a", 15)), Agrees,
		},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			mustBe(t, test.want, listed(10).apply(test.own...), listed(10).apply(test.publisher...).Latest(), 20)
		})
	}
}

func TestNothingIsKnownOfWhatAHistoryDoesNotHave(t *testing.T) {
	published := listed(10).apply(change(watch.Added, "a", 11), change(watch.Added, "b", 12)).Latest()
	resumed := listed(10)
	resumed.Resume("11")
	var begun History
	begun.Begin()
	full := listed(10)
	for i := range kept + 5 {
		full.apply(change(watch.Modified, "a", 13+i))
	}
	for title, history := range map[string]*History{
		"it has not begun":               {},
		"the list is not complete":       begun.apply(change(watch.Added, "a", 11), change(watch.Added, "b", 12)),
		"the list is later":              listed(13),
		"the watch has left out a part":  resumed.apply(change(watch.Added, "b", 12)),
		"it has forgotten what was then": full,
	} {
		t.Run(title, func(t *testing.T) { mustBe(t, Unknown, history, published, 20+kept) })
	}
	t.Run("it cannot be, as it is later than the heartbeat", func(t *testing.T) {
		mustBe(t, Unknown, listed(10), published, 12)
	})
	t.Run("the last that it has", func(t *testing.T) {
		mustBe(t, Agrees, full, listed(10).apply(change(watch.Added, "a", 13+kept+4)).Latest(), 20+kept)
		mustBe(t, Agrees, full, listed(10).apply(change(watch.Added, "a", 13+6)).Latest(), 20+kept)
	})
}

func TestAPublisherLagsIfItLeavesOutWhatOthersWereShownBefore(t *testing.T) {
	published := listed(10).apply(change(watch.Added, "a", 11)).Latest()
	own := listed(10).apply(change(watch.Added, "a", 11), change(watch.Deleted, "a", 12), bookmark(14, false))
	for after, want := range map[time.Duration]Verdict{promptly: Agrees, promptly + 1: Lags} {
		if got := own.Compare(published, "20", start.Add(after)); got != want {
			t.Errorf("verdict %d after %v, want %d", got, after, want)
		}
	}
	if got := own.Compare(published, "12", start.Add(time.Minute)); got != Agrees {
		t.Errorf("verdict %d on a change after the heartbeat", got)
	}
}

func TestTwoLostUpdatesDoNotCancelEachOther(t *testing.T) {
	seen := map[uint64]string{}
	for i := range 100 {
		for j := range 100 {
			a, b := fmt.Sprint(1000+i), fmt.Sprint(1000+j)
			sum := hashOf("uid-a", a) + hashOf("uid-b", b)
			if other, ok := seen[sum]; ok {
				t.Fatalf("%s and %s have one sum", other, a+" "+b)
			}
			seen[sum] = a + " " + b
		}
	}
}

func TestParse(t *testing.T) {
	want := listed(10, object("a", 9)).Latest()
	if got, ok := Parse(want.String()); !ok || got != want {
		t.Errorf("%v of %q", got, want)
	}
	for _, text := range []string{"", "/", "1", "1/", "/1", "0/1", "-1/1", "1/x", "1/1/1", Digest{}.String()} {
		if got, ok := Parse(text); ok {
			t.Errorf("%v of %q", got, text)
		}
	}
}

func TestADisputeEndsWithAListOfTheReplicaThatDiffersFromTwo(t *testing.T) {
	var d Dispute
	now := start
	judge := func(verdict Verdict, wantFirst, wantOver, wantList bool) {
		t.Helper()
		if isFirst, isOver, mustList := d.Judge(verdict, now); isFirst != wantFirst || isOver != wantOver || mustList != wantList {
			t.Errorf("%v %v %v", isFirst, isOver, mustList)
		}
		now = now.Add(time.Second)
	}
	judge(Agrees, false, false, false)
	judge(Differs, true, false, false)
	judge(Unknown, false, false, false)
	judge(Lags, false, false, false)
	judge(Agrees, false, true, false)
	judge(Differs, true, false, false)
	judge(Differs, false, false, true)
	now = now.Add(lasting)
	judge(Differs, true, false, false)
	now = now.Add(lasting)
	judge(Differs, true, false, false) // The first of another dispute.
	lists := 0
	for range 600 {
		if _, _, mustList := d.Judge(Differs, now); mustList {
			lists++
		}
		now = now.Add(time.Second)
	}
	if lists != 12 {
		t.Errorf("%d lists in ten minutes of dispute", lists)
	}
}
