package forrst_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// patientLocks never grant.
type patientLocks struct {
	lock.Backend

	waiting chan struct{}
}

func (l *patientLocks) Acquire(ctx context.Context, _ string, _ lock.Request) (*v1alpha1.Lock, error) {
	l.waiting <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func dial(tb testing.TB, s *serving) net.Conn {
	tb.Helper()
	connection, err := new(net.Dialer).DialContext(tb.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = connection.Close() })
	return connection
}
