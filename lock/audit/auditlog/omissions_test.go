package auditlog

import (
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/lock/audit"
)

// flood has count refusals recorded or counted, and returns how many have records and how many are told.
func flood(t *testing.T, decide *refusals, count int, refusal func(number int) audit.Record) (recorded, told int) {
	t.Helper()
	var left omissions
	for number := range count {
		record := refusal(number)
		if decide.mayBeRecorded(&record) {
			recorded++
		} else {
			left.add(&record, audit.TooManyRefusals)
		}
	}
	for _, record := range left.drain() {
		told += int(record.Count)
	}
	if len(left.drain()) > 0 {
		t.Error("what was told is told again")
	}
	return recorded, told
}

func TestRefusalsOfOneActorDoNotHideThoseOfOthers(t *testing.T) {
	const count = 5000
	cases := map[string]struct {
		refusal func(number int) audit.Record
		// most is how many of them have records.
		most int
		// victim is refused afterwards.
		victim audit.Record
	}{
		"one user":                {func(int) audit.Record { return refused("mallory", "hostile") }, refusalBurst, refused(worker, "payments")},
		"one user, in namespaces": {func(n int) audit.Record { return refused("mallory", fmt.Sprint(n)) }, refusalBurst, refused(worker, "payments")},
		"invented users":          {func(n int) audit.Record { return refused(fmt.Sprint("user-", n), "hostile") }, count, refused(worker, "payments")},
		"a network":               {func(int) audit.Record { return refusedCaller("10.0.0.1/32") }, refusalBurst, refusedCaller("10.0.0.2/32")},
		"Jobs of one namespace":   {func(int) audit.Record { return refused("", "hostile") }, refusalBurst, refused("", "payments")},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			decide := newRefusals(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
			recorded, told := flood(t, decide, count, test.refusal)
			if recorded != test.most || recorded+told != count {
				t.Errorf("%d records and %d omitted ones of %d, want %d records", recorded, told, count, test.most)
			}
			if !decide.mayBeRecorded(&test.victim) {
				t.Error("the refusal of another actor has no record")
			}
		})
	}
}

func refusedCaller(network string) audit.Record {
	record := refused("", "")
	record.Client = network
	return record
}

func TestAnActorThatIsRefusedAllTheTimeHasRecordsAtARate(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	decide := newRefusals(now)
	ofMallory := func(int) audit.Record { return refused("mallory", "payments") }
	flood(t, decide, 1000, ofMallory)
	now.SetTime(now.Now().Add(10 * time.Second))
	if recorded, _ := flood(t, decide, 1000, ofMallory); recorded != 10*refusalsPerSecond {
		t.Errorf("%d records after 10 s, want %d", recorded, 10*refusalsPerSecond)
	}
}

// An actor must not hide what it is refused for one reason behind refusals for another.
func TestRefusalsForOneReasonDoNotHideOthers(t *testing.T) {
	decide := newRefusals(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	flood(t, decide, 1000, func(int) audit.Record { return refused("mallory", "payments") })
	forbidden := refused("mallory", "payments")
	forbidden.Reason = audit.Forbidden
	if !decide.mayBeRecorded(&forbidden) {
		t.Error("the missing right has no record")
	}
}

func TestTheMemoryOfRefusalsIsBounded(t *testing.T) {
	decide := newRefusals(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	flood(t, decide, 2*maxBuckets, func(number int) audit.Record { return refused(fmt.Sprint("user-", number), "hostile") })
	if kept := decide.buckets.Len(); kept != maxBuckets {
		t.Errorf("%d rates are kept, want %d", kept, maxBuckets)
	}
}

// What is counted of more actors than there is room for is told without their names.
func TestTheMemoryOfOmissionsIsBounded(t *testing.T) {
	var left omissions
	for number := range 2 * maxCounts {
		record := granted(1)
		record.Actor = fmt.Sprint("user-", number)
		left.add(&record, audit.BufferFull)
	}
	told := map[string]int64{}
	for _, record := range left.drain() {
		told[record.Actor] += record.Count
	}
	if told[""] != maxCounts || len(told) != maxCounts+1 {
		t.Errorf("%d are told without a name, and %d names, want %d of each", told[""], len(told)-1, maxCounts)
	}
}
