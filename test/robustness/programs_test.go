package robustness_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
)

const (
	// heldPrefix begins the keys of programs with the SDK. The model does not know them, since
	// they renew on their own.
	heldPrefix = "held-"
	heldKeys   = 6
	minHeldTTL = 2 * time.Second
	maxHeldTTL = 5 * time.Second
)

// belief is a time in which a program with the SDK believed that it held a lock. It ends before the last question whether the
// lock is held that was answered with yes.
type belief struct {
	span

	program, key, owner string
	token               int64
	// setToken is that of the last of the locks that were acquired together, which fences all of them. Zero for a single lock.
	setToken int64
	// isSet says that the program asked for several locks, all with this owner, and has got none of them.
	isSet bool
	// err is what the SDK said about the end; nil if the program released the lock.
	err error
	// told is when the program learnt that it no longer held the lock, or released it. Zero if it is not known.
	told time.Duration
	// isUnexpected says that it could not acquire the lock for a reason that must not be.
	isUnexpected bool
}

func (h *belief) String() string {
	return fmt.Sprintf("%s held %s from %s to %s, token %d, owner %s, end: %v", h.program, h.key, h.from, h.to, h.token, short(h.owner), h.err)
}

// outcome says how it ended in short.
func (h *belief) outcome() string {
	switch {
	case h.token == 0:
		return "not acquired"
	case h.err == nil:
		return "held and released"
	}
	return "held and lost"
}

// fence is the number that the program sends along with its writes.
func (h *belief) fence() int64 { return cmp.Or(h.setToken, h.token) }

// program is a program with the SDK. It renews its locks until it releases them.
type program struct {
	name   string
	client *lock.Client
	// facade is the address of the one that it asks. Empty for a program that asks the API server.
	facade  string
	history *history
	random  *rand.Rand
}

// startPrograms starts a webhook and programs: some ask a replica each, and some the API
// server, each as a user of its own. The caller calls the result.
func (c *cluster) startPrograms(ctx context.Context) (stop func() error, err error) {
	stopWebhook, err := c.startWebhook(ctx)
	if err != nil {
		return nil, err
	}
	stops := []func() error{stopWebhook}
	stop = func() error {
		var problems []error
		for _, each := range slices.Backward(stops) {
			problems = append(problems, each())
		}
		return errors.Join(problems...)
	}
	for number, address := range c.addresses() {
		backend, err := client.New("http://" + address)
		if err != nil {
			return stop, err
		}
		c.programs = append(c.programs, &program{name: fmt.Sprintf("façade program %d", number), client: lock.NewClient(backend, clientNamespace), facade: address})
	}
	for number := range 2 {
		user, _, err := c.environment.User(fmt.Sprintf("program-%d", number), testenv.TestersGroup)
		if err != nil {
			return stop, err
		}
		direct, err := engine.NewDirect(user, clientNamespace, logr.Discard())
		if err != nil {
			return stop, err
		}
		running, cancel := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan error, 1)
		go func() { ended <- direct.Start(running) }()
		stops = append(stops, func() error {
			cancel()
			return <-ended
		})
		c.programs = append(c.programs, &program{name: fmt.Sprintf("direct program %d", number), client: lock.NewClient(direct, clientNamespace)})
	}
	return stop, nil
}

// startWebhook starts the webhook of locks and Jobs in this process.
func (c *cluster) startWebhook(ctx context.Context) (stop func() error, err error) {
	host, port, certDir, err := c.environment.InstallWebhook(ctx)
	if err != nil {
		return nil, err
	}
	server, err := c.environment.NewWebhookServer(host, port, certDir)
	if err != nil {
		return nil, err
	}
	manager, err := c.environment.NewManager(func(options *ctrl.Options) { options.WebhookServer = server })
	if err != nil {
		return nil, err
	}
	authorizer, err := auth.NewAuthorizer(manager.GetConfig(), manager.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	(&webhook.LockAdmission{
		Client: manager.GetClient(), LiveReader: manager.GetAPIReader(), ClockSkewAllowance: time.Second,
		Limits: rules.DefaultLimits(), Clock: clock.RealClock{}, Authorizer: authorizer,
	}).SetupWithManager(manager)
	(&webhook.JobAdmission{Limits: jobs.Limits{MaxTTL: time.Hour}, Clock: clock.RealClock{}}).SetupWithManager(manager)
	stop = testenv.StartManager(ctx, manager)
	for started := server.StartedChecker(); started(&http.Request{}) != nil; {
		if !pause(ctx, retry) {
			return stop, ctx.Err()
		}
	}
	return stop, nil
}

// run takes and holds locks until ctx ends.
func (p *program) run(ctx context.Context) {
	for pause(ctx, between(p.random, time.Millisecond, 300*time.Millisecond)) {
		p.session(context.WithoutCancel(ctx))
	}
}

func (p *program) session(ctx context.Context) {
	if p.random.IntN(3) == 0 {
		if p.facade != "" && p.random.IntN(2) == 0 {
			p.sessionOverREST(ctx)
		} else {
			p.sessionOfSet(ctx)
		}
		return
	}
	key := fmt.Sprintf("%s%d", heldPrefix, p.random.IntN(heldKeys))
	ttl := between(p.random, minHeldTTL, maxHeldTTL).Truncate(time.Millisecond)
	asked := p.history.now()
	got, err := p.client.Acquire(ctx, key, lock.WithTTL(ttl), lock.WithWait(between(p.random, 0, 5*time.Second).Truncate(time.Millisecond)+time.Millisecond))
	if err != nil {
		p.history.addBelief(belief{program: p.name, key: key, err: err, isUnexpected: !isExpected(err), span: span{asked, p.history.now()}})
		return
	}
	taken := belief{program: p.name, key: key, owner: got.Owner(), token: got.FencingToken()}
	taken.believe(p.history, got, between(p.random, 0, 2*maxHeldTTL))
	p.history.addBelief(taken)
	release, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = got.Release(release) // Its ttl ends it otherwise.
}

// sessionOfSet is a session with two or three locks at once.
func (p *program) sessionOfSet(ctx context.Context) {
	keys := p.drawKeys()
	asked, owner := p.history.now(), lock.NewOwner()
	options := []lock.Option{
		lock.WithTTL(between(p.random, minHeldTTL, maxHeldTTL).Truncate(time.Millisecond)), lock.WithReleaseTimeout(patience),
		lock.WithWait(between(p.random, 0, 5*time.Second).Truncate(time.Millisecond) + time.Millisecond), lock.WithOwner(owner),
	}
	if p.random.IntN(2) == 0 {
		options = append(options, lock.WithoutHoldAndWait())
	}
	got, err := p.client.AcquireAll(ctx, keys, options...)
	if err != nil {
		p.history.addBelief(belief{
			// A loss under an owner token of one's own choice matches no more than ErrNotHeld.
			isUnexpected: !isExpected(err) && !errors.Is(err, lock.ErrNotHeld),
			program:      p.name, key: strings.Join(keys, ", "), owner: owner, err: err, isSet: true, span: span{asked, p.history.now()},
		})
		return
	}
	hold := between(p.random, 0, 2*maxHeldTTL)
	var believing sync.WaitGroup
	for _, held := range got.Locks() {
		believing.Go(func() {
			taken := belief{program: p.name, key: held.Key().Bare(), owner: owner, token: held.FencingToken(), setToken: got.FencingToken()}
			taken.believe(p.history, held, hold)
			p.history.addBelief(taken)
		})
	}
	believing.Wait()
	_ = got.Release(ctx) // Their ttls end them otherwise.
}

// sessionOverREST is a session with two or three locks at once. The program renews them once, and believes in them from that
// answer on, for as long as their ttl from the request for it on.
func (p *program) sessionOverREST(ctx context.Context) {
	keys, name := p.drawKeys(), strings.Replace(p.name, "façade", "REST", 1)
	ttl := between(p.random, minHeldTTL, maxHeldTTL).Truncate(time.Millisecond)
	wait := between(p.random, 0, 2*maxHeldTTL).Truncate(time.Millisecond)
	asks := map[string]any{"keys": keys, "ttl_seconds": ttl.Seconds(), "wait_seconds": wait.Seconds()}
	if p.random.IntN(2) == 0 {
		asks["together"] = "strict"
	}
	path := wire.SetPath(clientNamespace, keys, "")
	asked := p.history.now()
	var set wire.Set
	status, err := p.send(ctx, http.MethodPost, strings.Split(path, "?")[0], asks, "", wait, &set)
	if status != http.StatusCreated {
		isRefused := slices.Contains([]int{0, http.StatusLocked, http.StatusGone, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable}, status)
		p.history.addBelief(belief{program: name, key: strings.Join(keys, ", "), err: err, isUnexpected: !isRefused, span: span{asked, p.history.now()}})
		return
	}
	defer func() { _, _ = p.send(ctx, http.MethodDelete, path, nil, set.LockToken, 0, nil) }() // Their ttls end them otherwise.
	asked = p.history.now()
	if status, _ = p.send(ctx, http.MethodPut, path, map[string]any{"ttl_seconds": ttl.Seconds()}, set.LockToken, 0, nil); status != http.StatusOK {
		return
	}
	from := p.history.now()
	pause(ctx, between(p.random, 0, ttl))
	to := min(p.history.now(), asked+ttl)
	if from > to {
		return // It was told too late.
	}
	fullKeys := make([]v1alpha1.FullKey, len(keys))
	for index, key := range keys {
		fullKeys[index] = v1alpha1.FullKeyOf(key)
	}
	token, isOfLocks := locktoken.ParseSet(set.LockToken, clientNamespace, fullKeys)
	for _, held := range set.Locks {
		p.history.addBelief(belief{
			program: name, key: held.Key, owner: rules.HashedOwner(token.Secret[:], token.Secret.IsDerived()), isUnexpected: !isOfLocks,
			token: *held.FencingToken, setToken: set.FencingToken, span: span{from, to}, told: to,
		})
	}
}

// send sends a request to the façade, which may wait for a lock, and decodes the answer. Without one the status is zero.
func (p *program) send(ctx context.Context, method, path string, asks map[string]any, token string, wait time.Duration, into any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait+patience)
	defer cancel()
	var body []byte
	if asks != nil {
		if body, err = json.Marshal(asks); err != nil {
			return 0, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+p.facade+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set(locktoken.Header, token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return response.StatusCode, fmt.Errorf("HTTP %d: %s", response.StatusCode, text)
	}
	if into != nil {
		err = json.Unmarshal(text, into)
	}
	return response.StatusCode, err
}

// drawKeys draws two or three keys, and returns them in their order.
func (p *program) drawKeys() []string {
	var keys []string
	for _, number := range p.random.Perm(heldKeys)[:2+p.random.IntN(2)] {
		keys = append(keys, fmt.Sprintf("%s%d", heldPrefix, number))
	}
	slices.Sort(keys)
	return keys
}

// lookEvery is how often a program asks whether it still holds its lock.
const lookEvery = 5 * time.Millisecond

// believe fills in from when to when the program believes that it holds the lock, for so long at most. Without an answer that it
// holds the lock, there is no token: the machine may have been busy until the lock had expired.
func (h *belief) believe(history *history, got *lock.Held, atMost time.Duration) {
	h.from = history.now()
	token := h.token
	h.token = 0
	timer, look := time.NewTimer(atMost), time.NewTicker(lookEvery)
	defer timer.Stop()
	defer look.Stop()
	for {
		asked := history.now()
		if h.err = got.Err(); h.err != nil {
			h.told = history.now()
			return
		}
		h.token, h.to = token, asked
		select {
		case <-got.Done():
			h.told, h.err = history.now(), got.Err()
			return
		case <-timer.C:
			h.told = history.now()
			return
		case <-look.C:
		}
	}
}

// runPrograms starts the work of all programs.
func (c *cluster) runPrograms(ctx context.Context, seed uint64, workers *sync.WaitGroup) {
	for number, program := range c.programs {
		program.history = c.history
		program.random = rand.New(rand.NewPCG(seed, 500+uint64(number)))
		workers.Go(func() { program.run(ctx) })
	}
	for number, holder := range c.holders {
		workers.Go(func() { holder.run(ctx, c.history, seed+uint64(number)) })
	}
}

// checkHeld checks what programs believed: never two at once, with tokens that grow, never
// longer than etcd had the grant, and never past its expiry.
func (r *record) checkHeld() (violations []string) {
	byKey := map[string][]*belief{}
	for index := range r.beliefs {
		if taken := &r.beliefs[index]; taken.token != 0 {
			byKey[taken.key] = append(byKey[taken.key], taken)
		} else if taken.isUnexpected {
			violations = append(violations, "held: unexpected: "+taken.String())
		} else if taken.isSet {
			violations = append(violations, r.checkNothingIsKept(taken)...)
		}
	}
	for _, key := range sortedKeys(byKey) {
		taken := byKey[key]
		slices.SortFunc(taken, func(a, b *belief) int { return cmp.Compare(a.from, b.from) })
		for index, next := range taken {
			violations = append(violations, r.checkBelief(next, next.to)...)
			if index == 0 {
				continue
			}
			before := taken[index-1]
			if next.from < before.to || next.token <= before.token || next.fence() <= before.fence() {
				violations = append(violations, fmt.Sprintf("held: two at once, or tokens that do not grow:\n\t\t%s\n\t\t%s", before, next))
			}
		}
	}
	return violations
}

// checkNothingIsKept checks that no lock of a set goes on that the program has not got.
func (r *record) checkNothingIsKept(failed *belief) (violations []string) {
	for _, grant := range r.byOwner[failed.owner] {
		// A renewal may have been on its way.
		if renewed := r.clock(grant.last.Spec.RenewTime.Time); renewed > failed.to+maxHeldTTL+r.skew+stampError {
			violations = append(violations, fmt.Sprintf("held: %s is renewed at %s, though the set was not acquired: %s", grant.key, renewed, failed))
		}
	}
	return violations
}

// checkTold checks that programs learn of the end of their locks soon.
func (r *record) checkTold() (violations []string) {
	for index := range r.beliefs {
		if taken := &r.beliefs[index]; taken.token != 0 {
			violations = append(violations, r.checkBelief(taken, taken.told-lateness)...)
		}
	}
	return violations
}

// checkBelief compares a belief that lasted until then with its grant in etcd.
func (r *record) checkBelief(taken *belief, until time.Duration) []string {
	granted := slices.IndexFunc(r.byOwner[taken.owner], func(grant *grant) bool { return grant.token == taken.token })
	if granted < 0 {
		return []string{"held: etcd has no such grant: " + taken.String()}
	}
	grant := r.byOwner[taken.owner][granted]
	expired := r.clock(grant.last.Spec.ExpireTime.Time) + r.skew + stampError
	if until > min(grant.to, expired) {
		return []string{fmt.Sprintf("held: the grant was ended at %s or had expired by %s: %s", grant.to, expired, taken)}
	}
	return nil
}

// lateness is how long after the end of its lock a program may learn of it.
const lateness = 200 * time.Millisecond

// isExpected reports whether an acquire may fail with the error. An API server that has just
// started forbids everything until it has read the roles.
func isExpected(err error) bool {
	return slices.ContainsFunc([]error{lock.ErrHeld, lock.ErrTimeout, lock.ErrUnavailable, lock.ErrRefused, lock.ErrExpired, lock.ErrTakenOver, lock.ErrForbidden}, func(known error) bool { return errors.Is(err, known) })
}

func isHeldKey(key string) bool { return strings.Contains(key, heldPrefix) }
