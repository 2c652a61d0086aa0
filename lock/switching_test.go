package lock_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// TestSwitching runs the lines of docs/switching.md, which are those of this function.
func TestSwitching(t *testing.T) {
	ctx := t.Context()
	backend := locktest.New()
	locks := lock.NewClient(backend, "payments")
	writeReport := func(context.Context, int64) error { return nil }
	run := func() error {
		// redislock
		held, err := locks.TryAcquire(ctx, "billing:report", lock.WithTTL(30*time.Second), lock.WithoutRenewal())
		if errors.Is(err, lock.ErrHeld) {
			return nil
		}
		if err != nil {
			return err
		}
		defer held.Release(ctx) //nolint:errcheck // as in the page
		err = held.Renew(ctx, time.Minute)
		left := time.Until(held.Deadline())
		if left <= 0 {
			return held.Err()
		}
		return err
	}
	retry := func() error {
		// redislock with a retry strategy, redsync
		held, err := locks.TryAcquire(ctx, "billing:report", lock.WithRetry(lock.RetryPolicy{Base: 500 * time.Millisecond, Factor: 1, Tries: 32, Ceiling: 20 * time.Second}))
		if err != nil {
			return err
		}
		return held.Release(ctx)
	}
	etcd := func() error {
		// etcd concurrency
		waiting, cancel := context.WithTimeout(ctx, 10*time.Second)
		held, err := locks.Acquire(waiting, "billing:report")
		cancel()
		if err != nil {
			return err
		}
		defer held.Release(ctx) //nolint:errcheck // as in the page
		work, stop := held.Bind(ctx)
		defer stop()
		return writeReport(work, held.FencingToken())
	}
	adopt := func() error {
		acquired, err := locks.Acquire(ctx, "billing:report")
		if err != nil {
			return err
		}
		token := acquired.Owner()
		if err := acquired.Detach(); err != nil {
			return err
		}
		// a lock that is known by key and token
		held, err := locks.Resume(ctx, "billing:report", lock.Proof{Owner: token})
		if err != nil {
			return err
		}
		return held.Release(ctx)
	}
	leases := func() error {
		// Leases
		return locks.Do(ctx, "billing:leader", func(ctx context.Context, held *lock.Held) error {
			return writeReport(ctx, held.FencingToken())
		})
	}
	for name, each := range map[string]func() error{"redislock": run, "retry": retry, "etcd": etcd, "adopt": adopt, "leases": leases} {
		if err := each(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if held := backend.All(); len(held) > 0 {
		t.Errorf("left %v", held)
	}
}

// TestSwitchingShowsCodeThatCompiles finds each block of the page's code in this file, with no line left out.
func TestSwitchingShowsCodeThatCompiles(t *testing.T) {
	page, err := os.ReadFile("../docs/switching.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("switching_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var compiled strings.Builder
	for line := range strings.Lines(string(source)) {
		line, _, _ = strings.Cut(line, " //nolint:")
		compiled.WriteString(strings.TrimSpace(line) + "\n")
	}
	shown := strings.Split(string(page), "```go\n")[1:]
	if len(shown) == 0 {
		t.Error("the page shows no code")
	}
	for _, rest := range shown {
		code, _, _ := strings.Cut(rest, "```")
		var block strings.Builder
		for line := range strings.Lines(code) {
			block.WriteString(strings.TrimSpace(line) + "\n")
		}
		if !strings.Contains(compiled.String(), "\n"+block.String()) {
			t.Errorf("this is in no test:\n%s", code)
		}
	}
}
