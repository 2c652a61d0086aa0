package auditlog

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/audit"
)

// The bursts of one actor, of all service accounts of one namespace, and of callers without an identity, do
// not keep the refusals of another actor out.
func TestRefusalsOfOneActorDoNotHideThoseOfOthers(t *testing.T) {
	account := func(number int) string { return fmt.Sprint("system:serviceaccount:hostile:account-", number) }
	cases := map[string]struct {
		flood func(number int) audit.Record
		// most is how many of them may have records.
		most int
		// victim is refused afterwards. The worker if it is nil.
		victim *audit.Record
	}{
		"one user":                        {func(int) audit.Record { return refused("mallory", "hostile") }, 50, nil},
		"one user, in many namespaces":    {func(n int) audit.Record { return refused("mallory", fmt.Sprint("namespace-", n)) }, 200, nil},
		"ten service accounts":            {func(n int) audit.Record { return refused(account(n%10), "hostile") }, 200, nil},
		"many service accounts":           {func(n int) audit.Record { return refused(account(n), "hostile") }, 200, nil},
		"many callers without identities": {func(n int) audit.Record { r := refused("", ""); r.Client = fmt.Sprint("10.0.0.", n); return r }, 200, nil},
		"Jobs of one namespace":           {func(n int) audit.Record { return refusedJob("hostile", n) }, 200, new(refusedJob("payments", 0))},
		"many users, beside a Job":        {func(n int) audit.Record { return refused(fmt.Sprint("user-", n), "hostile") }, allRefusalBurst, new(refusedJob("payments", 0))},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const count = 5_000
				omitted := newOmissions(clock.RealClock{})
				admitted := 0
				for number := range count {
					record := test.flood(number)
					if omitted.admit(&record) {
						admitted++
					}
				}
				victim := refused(worker, "payments")
				if test.victim != nil {
					victim = *test.victim
				}
				if !omitted.admit(&victim) {
					t.Error("the refusal of another actor has no record")
				}
				if admitted > test.most {
					t.Errorf("%d records, want at most %d", admitted, test.most)
				}
				if tenants := len(omitted.tenants); tenants > maxTenants {
					t.Errorf("%d tenants are kept, want at most %d", tenants, maxTenants)
				}
				for _, each := range omitted.tenants {
					if sources := len(each.sources); sources > maxSources+1 {
						t.Errorf("%d sources are kept, want at most %d and one for the rest", sources, maxSources)
					}
				}
				told := int64(0)
				for _, record := range omitted.drain() {
					told += record.Count
				}
				if admitted+int(told) != count {
					t.Errorf("%d records and %d omitted ones, of %d", admitted, told, count)
				}
				time.Sleep(time.Hour) //nolint:forbidigo // it only moves the clock of the bubble
				omitted.drain()
				if len(omitted.tenants) > 0 {
					t.Errorf("%d tenants are kept for nothing", len(omitted.tenants))
				}
			})
		})
	}
}

// refusedJob returns the record of a Job that was refused for one of several reasons.
func refusedJob(namespace string, number int) audit.Record {
	reasons := []audit.Reason{audit.Forbidden, audit.Invalid, audit.Conflict, audit.Held, audit.Failed}
	return audit.Record{Event: audit.Refused, Reason: reasons[number%len(reasons)], Via: audit.Controller, Namespace: namespace}
}

// Any number of users that no one has seen before has few records. A tenant that was refused before keeps
// its own, and is not forgotten for them.
func TestRefusalsOfInventedUsersDoNotHideThoseOfKnownTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		omitted := newOmissions(clock.RealClock{})
		known := refused(worker, "payments")
		if !omitted.admit(&known) {
			t.Fatal("the first refusal has no record")
		}
		time.Sleep(establishedAfter) //nolint:forbidigo // it only moves the clock of the bubble
		omitted.drain()
		const seconds, perSecond = 20, 1500
		records, own := 0, 0
		for second := range seconds {
			for number := range perSecond {
				invented := refused(fmt.Sprint("user-", second, "-", number%2000), "hostile")
				if omitted.admit(&invented) {
					records++
				}
			}
			if second%5 == 0 {
				omitted.drain()
				if omitted.admit(&known) {
					own++
				}
			}
			time.Sleep(time.Second) //nolint:forbidigo // it only moves the clock of the bubble
		}
		if most := allRefusalBurst + seconds*allRefusalsPerSecond; records > most {
			t.Errorf("%d records of invented users, want at most %d", records, most)
		}
		if own != seconds/5 {
			t.Errorf("%d records of a tenant that was known before, want %d", own, seconds/5)
		}
		flood := 0
		for range 1000 {
			if omitted.admit(&known) {
				flood++
			}
		}
		if flood > ownRefusalBurst+allRefusalsPerSecond {
			t.Errorf("%d records of a tenant that is refused all the time, want at most %d", flood, ownRefusalBurst+allRefusalsPerSecond)
		}
	})
}

// An actor must not hide what it is refused for one reason behind refusals for another, and calls beyond
// its rate least of all.
func TestRefusalsForOneReasonDoNotHideOthers(t *testing.T) {
	omitted := newOmissions(clock.RealClock{})
	for range 1000 {
		invalid, limited := refused("mallory", "payments"), refused("mallory", "payments")
		limited.Reason = audit.RateLimited
		omitted.admit(&invalid)
		if omitted.admit(&limited) {
			t.Fatal("a call beyond the rate has a record of its own")
		}
	}
	forbidden := refused("mallory", "payments")
	forbidden.Reason = audit.Forbidden
	if !omitted.admit(&forbidden) {
		t.Error("the missing right has no record")
	}
}

// What was counted of a tenant that has to make room is told without its name.
func TestEvictedTenantsAreTold(t *testing.T) {
	omitted := newOmissions(clock.RealClock{})
	for number := range 2 * maxTenants {
		record := granted(1)
		record.Actor = fmt.Sprint("user-", number)
		omitted.omit(&record, audit.BufferFull)
	}
	told := map[string]int64{}
	for _, record := range omitted.drain() {
		told[record.Actor] += record.Count
	}
	if told[""] != maxTenants || len(told) != maxTenants+1 {
		t.Errorf("%d are told without a name, and %d names, want %d of each", told[""], len(told)-1, maxTenants)
	}
}
