package scenario

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestSizesUpTo(t *testing.T) {
	for most, want := range map[int][]int{
		1:         {1},
		100_000:   {12_500, 25_000, 50_000, 100_000},
		1_000_000: {100_000, 125_000, 250_000, 500_000, 1_000_000},
		200_000:   {25_000, 50_000, 100_000, 200_000},
	} {
		if got := sizesUpTo(most); !slices.Equal(got, want) {
			t.Errorf("sizes up to %d are %v, want %v", most, got, want)
		}
	}
}

func TestGrowthNeedsTwiceWhatTheLocksSoFarTook(t *testing.T) {
	g := &growth{memories: []memories{{apiServer: 100, operator: 50, etcd: 50}}}
	if got := g.needed(1000); got != 0 {
		t.Errorf("before anything has grown, it needs %d", got)
	}
	// 10 bytes per lock.
	g.memories = append(g.memories, memories{locks: 100, apiServer: 600, operator: 350, etcd: 250})
	if got := g.needed(300); got != 4000 {
		t.Errorf("200 locks more need %d, want 4000", got)
	}
}

func TestStoredLockIsTheTemplateWithAnotherKey(t *testing.T) {
	stored := &storedLocks{template: []byte(`{"kind":"Lock","metadata":{"name":"a","uid":"b","generation":1},"spec":{"key":"c","owner":"d","expireTime":"e","ttl":"30m0s"}}`)}
	end := time.Date(2026, 11, 23, 12, 0, 0, 5000, time.UTC)
	content, err := stored.lock("live-7", "me", end)
	if err != nil {
		t.Fatal(err)
	}
	var lock v1alpha1.Lock
	if err := json.Unmarshal(content, &lock); err != nil {
		t.Fatal(err)
	}
	if lock.Spec.Key != "live-7" || lock.Spec.Owner != "me" || !lock.Spec.ExpireTime.Time.Equal(end) || lock.Generation != 1 ||
		lock.Spec.TTL.Duration != 30*time.Minute || lock.Name != objectName("live-7") || len(lock.UID) != 36 {
		t.Errorf("the lock is %+v", lock)
	}
	again, err := stored.lock("live-7", "me", end)
	if err != nil || bytes.Equal(again, content) {
		t.Errorf("two objects have one UID: %v", err)
	}
	stored.template = []byte(`{"spec":{}}`)
	if _, err := stored.lock("live-7", "me", end); err == nil || !strings.Contains(err.Error(), "another form") {
		t.Errorf("a lock of another form was accepted: %v", err)
	}
}
