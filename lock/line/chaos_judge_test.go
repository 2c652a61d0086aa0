//go:build !race

package line_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

const (
	// maxStampError is by how much a stamp may be wrong while clocks are: the allowance of the replicas, what the
	// answer to a write does not show, and half of the time that a slow write takes.
	maxStampError = time.Second + 600*time.Millisecond + 800*time.Millisecond
	// maxOnTheWay is how long ago a lock was granted at most when its caller is told.
	maxOnTheWay = 30 * time.Second
	// maxAsleep is how long a caller may wait beside a lock that is free. It is longer than a replica may be without a
	// home that serves it, and than a caller waits at its own replica.
	maxAsleep = 20 * time.Second
	// maxAsleepAlive is that where all replicas live and know the time: a home that is silent is left within 2 s, and a
	// slow request takes 1.5 s. MaxAsleepCalm is that where nothing fails, and a watch is late by 0.8 s.
	maxAsleepAlive, maxAsleepCalm = 3500 * time.Millisecond, time.Second
	// maxPassed is by how much earlier another caller may have come that is passed, where nothing fails.
	maxPassed = 5 * time.Millisecond
)

// judge knows what callers were told, and what etcd has.
type judge struct {
	of *replicas
	// slack is by how much a lock may end before its holder knows.
	slack time.Duration
	// maxAsleep is how long a caller may wait beside a lock that is free.
	maxAsleep time.Duration
	// isLenient says that locks may be left until their ttl.
	isLenient bool

	mu sync.Mutex
	// holder is who has been told that it has the lock, until it releases it.
	holder held
	grants int
	// fencing is the highest fencing token that a caller was told.
	fencing int64
	// waiting are when callers have come that wait, and at where they were last, by their owners.
	waiting map[int]time.Time
	at      map[string]*replica
	// late are the owners whose locks were not released in time.
	late map[string]bool
}

// held is a grant, as its holder knows it.
type held struct {
	owner   string
	fencing int64
	until   time.Time
}

func (h held) String() string {
	return fmt.Sprintf("%d of %s until %s", h.fencing, h.owner, h.until.Format(time.TimeOnly))
}

func newJudge(of *replicas, isMistimed, isLenient bool) *judge {
	j := &judge{of: of, maxAsleep: maxAsleep, isLenient: isLenient, waiting: map[int]time.Time{}, at: map[string]*replica{}, late: map[string]bool{}}
	if isMistimed {
		j.slack = maxStampError
	}
	return j
}

func (j *judge) errorf(format string, args ...any) {
	j.of.t.Helper()
	j.of.t.Errorf("after %v: "+format, append([]any{time.Since(j.of.began)}, args...)...)
}

// counts reports whether the holder may count on its lock.
func (j *judge) counts(of held) bool { return time.Now().Before(of.until.Add(-j.slack)) }

// comes records a call that waits, and goes its end.
func (j *judge) comes(caller int, owner string, at *replica) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting[caller], j.at[owner] = time.Now(), at
}

func (j *judge) goes(caller int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.waiting, caller)
}

// told judges a grant that its caller was told of.
func (j *judge) told(granted *v1alpha1.Lock, ttl time.Duration) held {
	now := held{owner: granted.Spec.Owner, until: granted.Spec.ExpireTime.Time}
	var err error
	if now.fencing, err = granted.FencingToken(); err != nil {
		j.errorf("%v", err)
	}
	j.isStamped(now, time.Now().Add(-maxOnTheWay), ttl)
	j.mu.Lock()
	j.grants++
	if j.counts(j.holder) {
		j.errorf("%v and %v hold the lock", j.holder, now)
	}
	if now.fencing <= j.fencing {
		j.errorf("%v is told after the fencing token %d", now, j.fencing)
	}
	j.fencing = max(j.fencing, now.fencing)
	j.holder = now
	j.mu.Unlock()
	j.check(now)
	return now
}

// isStamped judges until when a lock is held that was granted or renewed since then.
func (j *judge) isStamped(of held, since time.Time, ttl time.Duration) {
	if of.until.Before(since.Add(ttl-j.slack).Truncate(time.Microsecond)) || of.until.After(time.Now().Add(ttl+j.slack)) {
		j.errorf("%v is told for a ttl of %v", of, ttl)
	}
}

// check compares what a caller was told with what etcd has.
func (j *judge) check(of held) {
	if !j.counts(of) {
		return
	}
	if owner, now := j.of.etcd.holder(); owner != of.owner || now != of.fencing {
		j.errorf("%v is told, and %q has the lock under %d", of, owner, now)
	}
	if expires := j.of.etcd.expires(); expires.Before(of.until) {
		j.errorf("%v is told, and the lock is held until %v", of, expires)
	}
}

func (j *judge) renewed(of *held, renewed *v1alpha1.Lock, sent time.Time, ttl time.Duration) {
	of.until = renewed.Spec.ExpireTime.Time
	j.isStamped(*of, sent, ttl)
	j.check(*of)
	j.holds(*of)
}

// mayBeRenewed records that the lock may end at another time.
func (j *judge) mayBeRenewed(of *held, until time.Time) {
	if until.Before(of.until) {
		of.until = until
	}
	j.holds(*of)
}

// refused judges a renewal that was refused.
func (j *judge) refused(of *held, err error) {
	if j.counts(*of) {
		j.errorf("the renewal of %v is refused: %v", *of, err)
	}
}

// holds records until when the holder counts on the lock.
func (j *judge) holds(of held) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holder.owner == of.owner {
		j.holder = of
	}
}

// gives records that the holder does not count on the lock any more.
func (j *judge) gives(of held) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holder.fencing == of.fencing {
		j.holder = held{}
	}
}

// released judges what the holder was told of its release.
func (j *judge) released(of held, err error) {
	isLate := !j.counts(of)
	mayStay := isLate && errors.Is(err, lock.ErrNotHeld)
	if owner, now := j.of.etcd.holder(); owner == of.owner && now == of.fencing && !mayStay {
		j.errorf("the release of %v is told %v, and the lock is held", of, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.late[of.owner] = j.late[of.owner] || isLate
}

// passesNone fails if another caller waits that came before one who has got the lock.
func (j *judge) passesNone(caller int, came time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for other, since := range j.waiting {
		if other != caller && since.Add(maxPassed).Before(came) {
			j.errorf("caller %d has got the lock, and caller %d waits that came %v earlier", caller, other, came.Sub(since))
		}
	}
}

// watchProgress fails if a caller waits for long beside a lock that is free, until ctx ends.
func (j *judge) watchProgress(ctx context.Context) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	lastHeld := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if time.Now().Before(j.of.etcd.expires().Add(time.Second + j.slack)) {
			lastHeld = time.Now()
		}
		if asleep := j.asleep(lastHeld); asleep > j.maxAsleep {
			j.errorf("a caller has waited for %v beside a lock that is free since %v", asleep, lastHeld)
			return
		}
	}
}

// asleep returns for how long a caller has waited since then.
func (j *judge) asleep(then time.Time) (longest time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, came := range j.waiting {
		longest = max(longest, min(time.Since(came), time.Since(then)))
	}
	return longest
}

// end judges what is left.
func (j *judge) end() {
	if j.grants == 0 {
		j.errorf("no caller got the lock")
	}
	if owner, fencing := j.of.etcd.holder(); owner != "" && (!j.mayLapse(owner) || time.Now().Before(j.of.etcd.expires())) {
		j.errorf("%s has the lock still, under the fencing token %d", owner, fencing)
	}
	for _, owner := range j.of.etcd.lapsed {
		if !j.mayLapse(owner) {
			j.errorf("the lock of %s was left until its ttl", owner)
		}
	}
}

// mayLapse reports whether the lock may be left until its ttl: its holder was late, or a replica has ended that alone
// knew of it, or of a write for it that it was still looking for.
func (j *judge) mayLapse(owner string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if slices.ContainsFunc(j.of.etcd.unsure[owner], func(of *replica) bool { return of.hasEnded.Load() }) {
		return true
	}
	return j.isLenient || j.late[owner] || slices.Contains(j.of.etcd.orphans, owner) || j.at[owner].isKilled.Load()
}
