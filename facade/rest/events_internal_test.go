package rest

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

var noon = time.Date(2026, 3, 15, 12, 0, 0, 0, time.UTC)

// stored is a lock that was acquired and renewed so many seconds after noon, for ten seconds.
func stored(version, acquired, renewed int) *v1alpha1.Lock {
	at := func(seconds int) *v1alpha1.Timestamp {
		return new(v1alpha1.NewTimestamp(noon.Add(time.Duration(seconds) * time.Second)))
	}
	return &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Name: "k", ResourceVersion: strconv.Itoa(version)},
		Spec:       v1alpha1.LockSpec{Key: "k", AcquireTime: at(acquired), RenewTime: at(renewed), ExpireTime: at(renewed + 10)},
	}
}

func all(*v1alpha1.Lock) bool { return true }

func TestWhatAChangeMeans(t *testing.T) {
	for name, test := range map[string]struct {
		former *v1alpha1.Lock
		change lock.Change
		now    int
		want   []string
	}{
		"a free lock is acquired": {change: lock.Change{Lock: stored(2, 1, 1)}, want: []string{"acquired 2"}},
		"a waiter has it":         {former: stored(1, 0, 0), change: lock.Change{Lock: stored(2, 5, 5)}, now: 5, want: []string{"handed-off 2"}},
		"an expired lock is taken over before that was told": {former: stored(1, 0, 0), change: lock.Change{Lock: stored(2, 11, 11)}, now: 11, want: []string{"expired ", "acquired 2"}},
		"it is renewed":        {former: stored(1, 0, 0), change: lock.Change{Lock: stored(2, 0, 5)}, now: 5, want: []string{"renewed 2"}},
		"a label is set":       {former: stored(1, 0, 0), change: lock.Change{Lock: stored(2, 0, 0)}, now: 5, want: []string{"changed 2"}},
		"the watch repeats it": {former: stored(1, 0, 0), change: lock.Change{Lock: stored(1, 0, 0)}, now: 5},
		"it is released":       {former: stored(1, 0, 0), change: lock.Change{Lock: stored(2, 0, 0), IsGone: true}, now: 5, want: []string{"released 2"}},
		"it is deleted at its end before that was told": {former: stored(1, 0, 0), change: lock.Change{Lock: stored(2, 0, 0), IsGone: true}, now: 10, want: []string{"expired 2"}},
		"an expired lock is deleted":                    {change: lock.Change{Lock: stored(2, 0, 0), IsGone: true}, now: 11},
		"an expired lock is written":                    {change: lock.Change{Lock: stored(2, 0, 0)}, now: 11},
		"it is written after its end":                   {former: stored(1, 0, 0), change: lock.Change{Lock: stored(2, 0, 0)}, now: 11, want: []string{"expired 2"}},
		"a grant has lapsed when it is seen":            {former: stored(1, 0, 0), change: lock.Change{Lock: stored(2, 1, 1)}, now: 20, want: []string{"expired 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var present []*v1alpha1.Lock
			if test.former != nil {
				present = append(present, test.former)
			}
			told := begin(present, all, noon)
			var got []string
			for _, each := range told.follow(test.change, noon.Add(time.Duration(test.now)*time.Second), noon.Add(time.Duration(test.now)*time.Second)) {
				got = append(got, each.name+" "+each.version)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func named(name string, version, renewed int) *v1alpha1.Lock {
	made := stored(version, 0, renewed)
	made.Name = name
	return made
}

// No expiry is told late, nor early because of a lock that was renewed or released meanwhile.
func TestWhenTheNextLockExpires(t *testing.T) {
	told := begin([]*v1alpha1.Lock{named("a", 1, 0), named("b", 2, 3)}, all, noon)
	want := func(what string, seconds int) {
		t.Helper()
		if end := noon.Add(time.Duration(seconds) * time.Second); !told.next().Equal(end) {
			t.Errorf("%s: next is %v, want %v", what, told.next(), end)
		}
	}
	want("at first", 10)
	told.follow(lock.Change{Lock: named("a", 3, 5)}, noon, noon)
	told.follow(lock.Change{Lock: named("c", 4, -5)}, noon, noon)
	want("after an acquire", 5)
	told.follow(lock.Change{Lock: named("c", 5, -5), IsGone: true}, noon, noon)
	want("after a renewal and a release", 13)
	if ended := told.expire(noon.Add(13 * time.Second)); len(ended) != 1 || ended[0].lock.Name != "b" {
		t.Errorf("expired: %v", ended)
	}
	want("after an expiry", 15)
	told.expire(noon.Add(time.Minute))
	if !told.next().IsZero() {
		t.Errorf("next is %v, want none", told.next())
	}
}
