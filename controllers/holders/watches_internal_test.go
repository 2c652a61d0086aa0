package holders

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/apianswers"
)

// soon has room for a slow machine.
const soon = 30 * time.Second

// fakeObjects are the objects of one namespace, by name. What is not set here is not
// asked for.
type fakeObjects struct {
	client.WithWatch

	mu      sync.Mutex
	uids    map[string]types.UID
	streams map[string]*watch.FakeWatcher
	getErr  error
	// reads is how many there were, and lists how many pages; open is how many watches are, and
	// most how many were at once.
	reads, lists, open, most int
	// bystanders are further objects that a list has.
	bystanders int
	// answers, if not nil, has a value for each read that may be answered; underWay is how many reads
	// are not.
	answers  chan struct{}
	underWay int
}

// List returns one page. The token of the next one is the number of the objects so far.
func (f *fakeObjects) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	if f.getErr != nil {
		return f.getErr
	}
	var asked client.ListOptions
	asked.ApplyOptions(options)
	names := slices.Sorted(maps.Keys(f.uids))
	for i := range f.bystanders {
		names = append(names, fmt.Sprintf("bystander-%d", i))
	}
	begin, _ := strconv.Atoi(asked.Continue)
	end := min(len(names), begin+int(asked.Limit))
	page, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok {
		return fmt.Errorf("unexpected list %T", list)
	}
	for _, name := range names[begin:end] {
		page.Items = append(page.Items, *podNamed(name, f.uids[name]))
	}
	if end < len(names) {
		page.Continue, page.RemainingItemCount = strconv.Itoa(end), new(int64(len(names)-end))
	}
	return nil
}

// awaitAnswer returns when a read may be answered.
func (f *fakeObjects) awaitAnswer(ctx context.Context) error {
	if f.answers == nil {
		return nil
	}
	count := func(by int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.underWay += by
	}
	count(1)
	defer count(-1)
	select {
	case <-f.answers:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeObjects) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if err := f.awaitAnswer(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.getErr != nil {
		return f.getErr
	}
	uid, ok := f.uids[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	}
	object.SetName(key.Name)
	object.SetUID(uid)
	return nil
}

func (f *fakeObjects) Watch(ctx context.Context, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var asked client.ListOptions
	asked.ApplyOptions(options)
	name, _ := asked.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	stream := watch.NewFakeWithChanSize(10, false)
	if f.streams == nil {
		f.streams = map[string]*watch.FakeWatcher{}
	}
	f.streams[name] = stream
	f.open++
	f.most = max(f.most, f.open)
	context.AfterFunc(ctx, stream.Stop)
	return &closing{FakeWatcher: stream, closed: func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open--
	}}, nil
}

// closing tells once that a watch was stopped.
type closing struct {
	*watch.FakeWatcher
	once   sync.Once
	closed func()
}

func (c *closing) Stop() {
	c.once.Do(c.closed)
	c.FakeWatcher.Stop()
}

func (f *fakeObjects) counts() (reads, open, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads, f.open, f.most
}

func (f *fakeObjects) stream(name string) *watch.FakeWatcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.streams[name]
}

func (f *fakeObjects) set(name string, uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if uid == "" {
		delete(f.uids, name)
		return
	}
	if f.uids == nil {
		f.uids = map[string]types.UID{}
	}
	f.uids[name] = uid
}

type watchesFixture struct {
	*holderWatches
	objects *fakeObjects
	clock   *clocktesting.FakeClock
	leads   atomic.Bool
	woken   chan types.NamespacedName
}

func newWatchesFixture(t *testing.T, limit int) *watchesFixture {
	t.Helper()
	fixture := &watchesFixture{
		objects: &fakeObjects{}, clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)),
		woken: make(chan types.NamespacedName, 100),
	}
	fixture.leads.Store(true)
	fixture.holderWatches = newHolderWatches(fixture.objects, fixture.clock, limit, fixture.leads.Load,
		func(lock types.NamespacedName) { fixture.woken <- lock })
	ctx, cancel := context.WithCancel(t.Context())
	var started sync.WaitGroup
	started.Go(func() { _ = fixture.Start(ctx) })
	t.Cleanup(func() {
		cancel()
		started.Wait()
		if _, open, _ := fixture.objects.counts(); open != 0 {
			t.Errorf("%d watches are open after the end", open)
		}
	})
	return fixture
}

// observePod has a lock of the Pod's name looked after.
func (f *watchesFixture) observePod(name string) types.NamespacedName {
	f.objects.set(name, types.UID("uid-of-"+name))
	lock := types.NamespacedName{Namespace: "default", Name: name}
	f.observe(lock, holderOf(name))
	return lock
}

func holderOf(name string) holder {
	return holder{namespace: "default", ref: v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID("uid-of-" + name)}}
}

func podNamed(name string, uid types.UID) *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}

// eventually waits for what another goroutine does.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	NewWithT(t).Eventually(holds).WithTimeout(soon).WithPolling(time.Millisecond).Should(BeTrue(), what)
}

func (f *watchesFixture) expectWoken(t *testing.T, want types.NamespacedName) {
	t.Helper()
	NewWithT(t).Eventually(f.woken).WithTimeout(soon).Should(Receive(Equal(want)))
}

// TestWatchThatBeginsInThePast tells of a former Pod of the same name first, as an API
// server does that is behind: those of a StatefulSet share names.
func TestWatchThatBeginsInThePast(t *testing.T) {
	fixture := newWatchesFixture(t, 10)
	lock := fixture.observePod("web-0")
	eventually(t, "the holder is read", func() bool { reads, _, _ := fixture.objects.counts(); return reads == 1 })
	stream := fixture.objects.stream("web-0")
	stream.Add(podNamed("web-0", "a-former-one"))
	stream.Modify(podNamed("web-0", "a-former-one"))
	stream.Delete(podNamed("web-0", "a-former-one"))
	stream.Add(podNamed("web-0", "uid-of-web-0"))
	eventually(t, "the events are taken in", func() bool { return len(stream.ResultChan()) == 0 })
	if how := fixture.observe(lock, holderOf("web-0")); how != "" || len(fixture.woken) != 0 {
		t.Fatalf("the holder counts as ended: %q", how)
	}
	stream.Delete(podNamed("web-0", "uid-of-web-0"))
	fixture.expectWoken(t, lock)
	if how := fixture.observe(lock, holderOf("web-0")); how != howDeleted {
		t.Errorf("the holder %q, want %q", how, howDeleted)
	}
}

// TestKindThatIsNotServed is about a kind, or a version of it, that the API server serves
// no longer, or not yet: objects of it may exist.
func TestKindThatIsNotServed(t *testing.T) {
	fixture := newWatchesFixture(t, 10)
	fixture.objects.getErr = apianswers.ErrNotServed
	lock := fixture.observePod("w")
	eventually(t, "the holder is read", func() bool { reads, _, _ := fixture.objects.counts(); return reads == 1 })
	eventually(t, "it is left for a while", func() bool { return len(fixture.slots) == 0 && fixture.clock.Waiters() == 1 })
	fixture.clock.Step(2 * unwatchedPeriod)
	eventually(t, "the holder is read again", func() bool { reads, _, _ := fixture.objects.counts(); return reads == 2 })
	if how := fixture.observe(lock, holderOf("w")); how != "" || len(fixture.woken) != 0 {
		t.Fatalf("the holder counts as ended: %q", how)
	}
}

func TestWatchesAreLimited(t *testing.T) {
	const limit, holders = 3, 10
	fixture := newWatchesFixture(t, limit)
	var locks []types.NamespacedName
	for i := range holders {
		locks = append(locks, fixture.observePod(fmt.Sprintf("pod-%d", i)))
	}
	settled := func(reads, waiters int) func() bool {
		return func() bool {
			got, open, _ := fixture.objects.counts()
			return got == reads && open == limit && fixture.clock.Waiters() == waiters
		}
	}
	eventually(t, "some holders are watched, and the others gathered", settled(limit, 2))
	fixture.clock.Step(gatherFor)
	eventually(t, "all holders are read", settled(holders, 1))
	isWatched := func(lock types.NamespacedName) bool { return fixture.objects.stream(lock.Name) != nil }
	unwatched := slices.DeleteFunc(slices.Clone(locks), isWatched)
	watched := slices.DeleteFunc(slices.Clone(locks), func(lock types.NamespacedName) bool { return !isWatched(lock) })
	if len(unwatched) != holders-limit {
		t.Fatalf("%d of %d are not watched, want %d", len(unwatched), holders, holders-limit)
	}

	fixture.objects.set(unwatched[0].Name, "")
	fixture.clock.Step(unwatchedPeriod - gatherFor - time.Second) // It began before they were gathered.
	if reads, _, _ := fixture.objects.counts(); reads != holders || len(fixture.woken) != 0 {
		t.Errorf("%d reads and %d ends before the period is over, want %d and none", reads, len(fixture.woken), holders)
	}
	fixture.clock.Step(unwatchedPeriod)
	fixture.expectWoken(t, unwatched[0])
	fixture.forget(unwatched[0])
	eventually(t, "the others are read again", settled(2*holders-limit, 1))

	// A watch that is given up makes room for another holder.
	fixture.forget(watched[0])
	eventually(t, "a watch is closed", func() bool { return len(fixture.slots) == limit-1 })
	fixture.clock.Step(2 * unwatchedPeriod)
	eventually(t, "another one is opened", func() bool { _, open, _ := fixture.objects.counts(); return open == limit })
	for _, lock := range locks {
		fixture.forget(lock)
	}
	eventually(t, "all are closed", func() bool { _, open, _ := fixture.objects.counts(); return open == 0 })
	if _, _, most := fixture.objects.counts(); most > limit {
		t.Errorf("%d watches were open at once, want at most %d", most, limit)
	}
}

// TestWatchesEndWithTheLeadership is about locks that do not change after the loss, and are
// not reconciled.
func TestWatchesEndWithTheLeadership(t *testing.T) {
	fixture := newWatchesFixture(t, 10)
	lock := fixture.observePod("pod")
	isOpen := func(want int) func() bool {
		return func() bool { _, open, _ := fixture.objects.counts(); return open == want }
	}
	eventually(t, "the holder is watched", isOpen(1))
	eventually(t, "Start waits", func() bool { return fixture.clock.Waiters() == 1 })
	fixture.clock.Step(2 * unwatchedPeriod)
	eventually(t, "Start waits again", func() bool { return fixture.clock.Waiters() == 1 })
	if !isOpen(1)() || !fixture.isObserved(holderOf("pod")) {
		t.Fatal("the leader does not watch")
	}
	fixture.leads.Store(false)
	fixture.clock.Step(2 * unwatchedPeriod)
	eventually(t, "the watch is closed", isOpen(0))
	fixture.leads.Store(true)
	fixture.observe(lock, holderOf("pod"))
	eventually(t, "the holder is watched again", isOpen(1))
}

// TestManyHoldersOfANamespaceAreListed is about a replica that becomes the leader.
func TestManyHoldersOfANamespaceAreListed(t *testing.T) {
	const limit, holders = 5, 1300
	fixture := newWatchesFixture(t, limit)
	var locks []types.NamespacedName
	for i := range holders {
		locks = append(locks, fixture.observePod(fmt.Sprintf("pod-%d", i)))
	}
	eventually(t, "those without a watch are gathered", func() bool { return fixture.clock.Waiters() == 2 })
	fixture.objects.set(locks[holders-1].Name, "")
	fixture.objects.set(locks[holders-2].Name, "another")
	fixture.clock.Step(gatherFor)
	eventually(t, "two ends are found", func() bool { return len(fixture.woken) == 2 })
	woken := []types.NamespacedName{<-fixture.woken, <-fixture.woken}
	if !slices.Contains(woken, locks[holders-1]) || !slices.Contains(woken, locks[holders-2]) {
		t.Errorf("woke %v, want the locks of the two that are gone", woken)
	}
	counts := func() (reads, lists int) {
		fixture.objects.mu.Lock()
		defer fixture.objects.mu.Unlock()
		return fixture.objects.reads, fixture.objects.lists
	}
	if reads, lists := counts(); reads != limit || lists != 3 {
		t.Errorf("%d reads and %d pages, want %d and 3", reads, lists, limit)
	}
	fixture.forget(locks[holders-1])
	fixture.forget(locks[holders-2])

	// A page with few holders in it costs more than their reads.
	fixture.objects.mu.Lock()
	fixture.objects.bystanders = 1_000_000
	fixture.objects.mu.Unlock()
	eventually(t, "the next round waits", func() bool { return fixture.clock.Waiters() == 1 })
	for range holders {
		if reads, _ := counts(); reads == limit+holders-limit-2 {
			break
		}
		eventually(t, "the next read waits", fixture.clock.HasWaiters)
		fixture.clock.Step(unwatchedPeriod)
	}
	if reads, lists := counts(); reads < holders-2 || lists < 4 {
		t.Errorf("%d reads and %d pages, want at least %d and 4", reads, lists, holders-2)
	}
}

// TestLooksAreLimitedByARate is about a replica that becomes the leader.
func TestLooksAreLimitedByARate(t *testing.T) {
	const holders = 4 * looksAtOnce
	fixture := newWatchesFixture(t, holders)
	for i := range holders {
		fixture.observePod(fmt.Sprintf("pod-%d", i))
	}
	// Start waits, and so does each that is not looked at.
	looked := func(want int) func() bool {
		return func() bool {
			reads, open, _ := fixture.objects.counts()
			return reads == want && open == want && fixture.clock.Waiters() == 1+holders-want
		}
	}
	for second := 1; second <= holders/looksAtOnce; second++ {
		eventually(t, fmt.Sprintf("some are looked at in second %d", second), looked(second*looksPerSecond))
		fixture.clock.Step(time.Second)
	}
}

// TestReadsUnderWayAreLimited is about a replica that becomes the leader while the API server is slow.
func TestReadsUnderWayAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newWatchesFixture(t, looksAtOnce)
		fixture.objects.answers = make(chan struct{})
		for i := range looksAtOnce {
			fixture.observePod(fmt.Sprintf("pod-%d", i))
		}
		for left := looksAtOnce; left > 0; left-- {
			synctest.Wait()
			fixture.objects.mu.Lock()
			underWay := fixture.objects.underWay
			fixture.objects.mu.Unlock()
			if underWay != min(left, maxReads) {
				t.Fatalf("%d reads are under way while %d holders are to be read, want %d", underWay, left, min(left, maxReads))
			}
			fixture.objects.answers <- struct{}{}
		}
		synctest.Wait()
	})
}
