package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
)

const (
	heldKeys = 6
	// The ttl is short, so a stop that is longer can be short, too.
	minHeldTTL = time.Second
	maxHeldTTL = 2500 * time.Millisecond
	maxHold    = 6 * time.Second
	// lookEvery is how often a holder asks whether it still holds its lock.
	lookEvery = 5 * time.Millisecond
	// releaseTimeout bounds a release, whose lock otherwise ends by its ttl.
	releaseTimeout = 8 * time.Second
)

// holder is a program with the SDK that holds locks, and reports from when to when it believed
// that it does. In a process of its own it can be stopped.
type holder struct {
	client  *lock.Client
	clock   *steppedClock
	reports *reports

	// stop and done belong to the present work, if there is any.
	stop context.CancelFunc
	done sync.WaitGroup
}

// belief is what is reported of one acquire, in nanoseconds since 1970 by the real clock. From
// and To are times before a question whether the lock is held that was answered with yes. Without such
// an answer, Token is zero: the process may have been stopped until the lock had expired.
type belief struct {
	Key          string `json:"key"`
	Owner        string `json:"owner"`
	Token        int64  `json:"token"`
	From         int64  `json:"from"`
	To           int64  `json:"to"`
	Err          string `json:"err"`
	IsUnexpected bool   `json:"isUnexpected"`
}

// hold obeys "work 1", which takes and holds locks by the choices of that seed, "rest", which
// ends that, and "suspend", until in ends.
func hold(facade, namespace string, in io.Reader, reports *reports) error {
	backend, err := client.New(facade)
	if err != nil {
		return err
	}
	local := &steppedClock{}
	program := &holder{client: lock.NewClient(backend, namespace, lock.WithClock(local)), clock: local, reports: reports}
	defer program.rest()
	reports.write("ready")
	obey(in, program.carryOut)
	return nil
}

func (h *holder) carryOut(line string) error {
	command, value, _ := strings.Cut(line, " ")
	switch command {
	case "work":
		var seed uint64
		if _, err := fmt.Sscan(value, &seed); err != nil {
			return err
		}
		h.rest()
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		random := rand.New(rand.NewPCG(seed, 0))
		h.done.Go(func() { h.work(ctx, random) })
		return nil
	case "rest":
		h.rest()
		h.reports.write("rests")
		return nil
	}
	return change(h.clock, line, h.reports)
}

func (h *holder) rest() {
	if h.stop != nil {
		h.stop()
	}
	h.done.Wait()
}

func (h *holder) work(ctx context.Context, random *rand.Rand) {
	for sleep(ctx, time.Duration(random.Int64N(int64(100*time.Millisecond)))) {
		taken := h.session(ctx, random)
		line, err := json.Marshal(taken)
		if err != nil {
			panic(err) // Only texts and numbers.
		}
		h.reports.write("belief %s", line)
	}
}

func (h *holder) session(ctx context.Context, random *rand.Rand) (made belief) {
	chosen := func(low, high time.Duration) time.Duration {
		return (low + time.Duration(random.Int64N(int64(high-low)))).Truncate(time.Millisecond)
	}
	made.Key = fmt.Sprintf("held-%d", random.IntN(heldKeys))
	made.From = time.Now().UnixNano()
	held, err := h.client.Acquire(context.WithoutCancel(ctx), made.Key, lock.WithTTL(chosen(minHeldTTL, maxHeldTTL)), lock.WithWait(chosen(time.Millisecond, 8*time.Second)))
	if err != nil {
		made.To, made.Err = time.Now().UnixNano(), err.Error()
		made.IsUnexpected = !slices.ContainsFunc(expected, func(known error) bool { return errors.Is(err, known) })
		return made
	}
	h.reports.write("holds")
	defer h.reports.write("free")
	for end := time.Now().Add(chosen(0, maxHold)); ; {
		asked := time.Now()
		if err := held.Err(); err != nil {
			made.Err = err.Error()
			break
		}
		if made.Token == 0 {
			made.Owner, made.Token, made.From = held.Owner(), held.FencingToken(), asked.UnixNano()
		}
		made.To = asked.UnixNano()
		if asked.After(end) || !sleep(ctx, lookEvery) {
			break
		}
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_ = held.Release(release) // Its ttl ends it otherwise.
	return made
}

// expected are the errors with which an acquire may fail. A program that is stopped between the grant and
// the return finds its lock expired, and perhaps taken over since.
var expected = []error{lock.ErrHeld, lock.ErrTimeout, lock.ErrUnavailable, lock.ErrRefused, lock.ErrExpired, lock.ErrTakenOver}
