package server

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestLinesOfOneKindHideNoOthers(t *testing.T) {
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	faults := newErrorLog(logger, clocktesting.NewFakePassiveClock(time.Now()))
	to := slog.NewLogLogger(faults, slog.LevelInfo)
	for port := range 100 {
		to.Printf("http: TLS handshake error from 192.0.2.1:%d: EOF", port)
	}
	lines = nil
	to.Printf("http: panic serving %s: %s\n%s", "192.0.2.1:1", "out of range", "goroutine 7 [running]:")
	if len(lines) != 1 || !strings.Contains(lines[0], "goroutine 7") {
		t.Errorf("the panic is logged as %q", lines)
	}
}

func TestTheKindsOfLinesAreBounded(t *testing.T) {
	faults := newErrorLog(funcr.New(func(string, string) {}, funcr.Options{}), clocktesting.NewFakePassiveClock(time.Now()))
	for kind := range 10 * maxErrorKinds {
		slog.NewLogLogger(faults, slog.LevelInfo).Print(fmt.Sprint("kind-", kind))
	}
	if len(faults.kinds) > maxErrorKinds+1 {
		t.Errorf("%d kinds are kept", len(faults.kinds))
	}
}
