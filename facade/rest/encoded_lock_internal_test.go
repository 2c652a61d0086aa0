package rest

import (
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

func grantedLock(tb testing.TB, key string) *v1alpha1.Lock {
	tb.Helper()
	granted, err := locktest.New().Acquire(tb.Context(), "payments", lock.Request{Acquisition: rules.Acquisition{
		Key: key, Holder: "alice", Reason: "monthly close", TTL: time.Minute,
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return granted
}

func TestALockIsEncodedOnce(t *testing.T) {
	encoded := newEncodedLocks()
	first, second := grantedLock(t, "a"), grantedLock(t, "b") // Both are of version 1, and so in one place.
	for _, told := range []*v1alpha1.Lock{first, second, first} {
		got, again := encoded.encode(told), encoded.encode(told)
		if want := string(encode(describe(told))); string(got) != want || &got[0] != &again[0] {
			t.Errorf("got %s and %s, want %s once", got, again, want)
		}
	}
}
