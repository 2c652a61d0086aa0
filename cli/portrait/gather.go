package portrait

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/lock/audit"
)

const (
	// maxFacts is how many facts the history has.
	maxFacts = 10
	// maxRecordBytes is more than a record of the audit may have.
	maxRecordBytes = 64 << 10
)

// Gatherer asks the API server what is known of a lock.
type Gatherer struct {
	Cluster client.Client
	// LastLog returns when a Pod last wrote a line. It is called by several goroutines. Nil means that logs
	// are not asked for.
	LastLog func(ctx context.Context, pod *corev1.Pod) (time.Time, error)
	// Audit has records of the audit, one a line, among other lines. May be nil.
	Audit io.Reader
	// Now returns the time of the service.
	Now func() time.Time
}

// gathering is a portrait to which several goroutines add.
type gathering struct {
	*Gatherer
	Portrait
	mu sync.Mutex
}

// GatherHolder returns what is known of the holder of a lock alone: what stands behind it, which Jobs wait
// for the lock, and whose Pods keep them from their start.
func (g *Gatherer) GatherHolder(ctx context.Context, held *v1alpha1.Lock) *Portrait {
	found := &gathering{Gatherer: g, Portrait: Portrait{ID: locks.IDOf(held), Lock: held}}
	for _, ask := range []func(context.Context) error{found.behind, found.waiting, found.leaving} {
		if err := ask(ctx); err != nil {
			found.unknown("the holder", err)
		}
	}
	return &found.Portrait
}

// Gather returns the portrait. Only a failure to read the lock itself is an error: what
// else cannot be found out is in Unknown.
func (g *Gatherer) Gather(ctx context.Context, namespace string, key v1alpha1.FullKey) (*Portrait, error) {
	found := &gathering{Gatherer: g, Portrait: Portrait{ID: locks.ID{Namespace: namespace, Key: key}}}
	if err := found.read(ctx); err != nil {
		return nil, err
	}
	if !found.IsHeld(g.Now()) {
		if err := found.findJob(ctx); err != nil {
			return nil, err
		}
	}
	var asking sync.WaitGroup
	for what, ask := range map[string]func(context.Context) error{
		"who you are":           found.me,
		"the holder's object":   found.behind,
		"the Jobs that wait":    found.waiting,
		"the Jobs that stop":    found.leaving,
		"the other namespaces":  found.elsewhere,
		"locks of similar keys": found.nearby,
		"the events":            found.events,
		"what you may do":       found.rights,
		"the records of audits": found.audit,
	} {
		asking.Go(func() {
			if err := ask(ctx); err != nil {
				found.unknown(what, err)
			}
		})
	}
	asking.Wait()
	slices.SortFunc(found.History, func(a, b Fact) int { return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.What, b.What)) })
	found.History = found.History[max(0, len(found.History)-maxFacts):]
	slices.Sort(found.Unknown)
	found.Unknown = slices.Compact(found.Unknown) // Several Pods may be on one node.
	return &found.Portrait, nil
}

// read reads the lock.
func (g *gathering) read(ctx context.Context) error {
	lock := new(v1alpha1.Lock)
	err := g.Cluster.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: g.Key.ObjectName()}, lock)
	switch {
	case err == nil:
		g.Lock = lock
	case !apierrors.IsNotFound(err):
		return err
	}
	return nil
}

// findJob looks for a Job under a lock that has the key as its name.
func (g *gathering) findJob(ctx context.Context) error {
	name := g.Key.Bare()
	kind, of, isObject := locks.ObjectName(name)
	isJob := isObject && kind == "Job"
	if isJob {
		name = of
	}
	job, err := locks.FindJob(ctx, g.Cluster, g.Namespace, name)
	if err != nil {
		g.unknown("whether a Job has this name", err)
		return nil
	}
	if g.Job = job; job == nil || !isJob {
		return nil
	}
	g.ID, g.Lock = job.ID, nil
	return g.read(ctx)
}

func (g *gathering) unknown(what string, err error) {
	text := what + ": " + err.Error()
	if apierrors.IsForbidden(err) {
		text = what + ": you may not read them"
		if strings.HasPrefix(what, "whether ") || what == "the holder's object" || what == "who you are" || what == "what you may do" {
			text = what + ": you may not read that"
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Unknown = append(g.Unknown, text)
}

func (g *gathering) me(ctx context.Context) error {
	review := new(authenticationv1.SelfSubjectReview)
	if err := g.Cluster.Create(ctx, review); err != nil {
		return err
	}
	g.Me = review.Status.UserInfo.Username
	return nil
}

func (g *gathering) rights(ctx context.Context) error {
	create, err := g.may(ctx, "create")
	if err != nil {
		return err
	}
	force := true
	// A forced release marks the lock and then deletes it, which needs all three.
	for _, verb := range []string{"force-release", "update", "delete"} {
		allowed, err := g.may(ctx, verb)
		if err != nil {
			return err
		}
		force = force && allowed
	}
	g.May = Rights{Known: true, Create: create, Force: force}
	return nil
}

func (g *gathering) may(ctx context.Context, verb string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: g.Namespace, Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: "locks", Name: g.Key.ObjectName(),
		},
	}}
	if verb == "create" {
		review.Spec.ResourceAttributes.Name = ""
	}
	err := g.Cluster.Create(ctx, review)
	return review.Status.Allowed, err
}

func (g *gathering) waiting(ctx context.Context) error {
	all, err := locks.WaitingJobs(ctx, g.Cluster, g.Namespace)
	g.Waiting = all[g.ID]
	if g.IsHeld(g.Now()) {
		g.Waiting = new(locks.RowOf(g.Lock)).Waiting(all)
	}
	return err
}

// elsewhere looks for the key in other namespaces if it is free in this one: it may have been left out.
func (g *gathering) elsewhere(ctx context.Context) (err error) {
	if g.Job == nil && !g.IsHeld(g.Now()) {
		g.HeldIn, err = locks.HeldElsewhere(ctx, g.Cluster, g.ID, g.Now())
	}
	return err
}

// nearby looks for similar keys if no lock has the key, not even an expired one: it may have been mistyped.
func (g *gathering) nearby(ctx context.Context) (err error) {
	if g.Job == nil && g.Lock == nil {
		g.Nearby, err = locks.HeldNearby(ctx, g.Cluster, g.ID, g.Now())
	}
	return err
}

func (g *gathering) events(ctx context.Context) error {
	events, err := g.eventsOf(ctx, "Lock", g.Key.ObjectName())
	for index := range events {
		g.add(factOf(&events[index]))
	}
	return err
}

// eventsOf returns the events of an object of that name.
func (g *gathering) eventsOf(ctx context.Context, kind, name string) ([]corev1.Event, error) {
	var events corev1.EventList
	err := g.Cluster.List(ctx, &events, client.InNamespace(g.Namespace), client.Limit(locks.PageSize), client.MatchingFieldsSelector{Selector: fields.AndSelectors(
		fields.OneTermEqualSelector("involvedObject.kind", kind), fields.OneTermEqualSelector("involvedObject.name", name))})
	return events.Items, err
}

func factOf(event *corev1.Event) Fact {
	at := cmp.Or(event.LastTimestamp.Time, event.EventTime.Time, event.CreationTimestamp.Time)
	if event.Series != nil {
		at = event.Series.LastObservedTime.Time
	}
	return Fact{Time: at, What: event.Reason + ": " + event.Message}
}

func (g *gathering) add(fact Fact) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.History = append(g.History, fact)
}

// audit reads the records of the lock among the lines of a log.
func (g *gathering) audit(context.Context) error {
	if g.Audit == nil {
		return nil
	}
	lines := bufio.NewReaderSize(g.Audit, maxRecordBytes)
	for {
		line, isCut, err := lines.ReadLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		begin := strings.IndexByte(string(line), '{')
		if isCut || begin < 0 {
			continue
		}
		var record audit.Record
		if json.Unmarshal(line[begin:], &record) != nil || record.Schema != audit.Schema ||
			record.Namespace != g.Namespace || record.Lock != g.Key.ObjectName() {
			continue
		}
		if fact, ok := fromAudit(&record, g.Namespace); ok {
			g.add(fact)
		}
	}
}
